// engine-run: runs an engine set on whichever libaxcl_rt.so it is given.
#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

#include "chain.hpp"
#include "crash.hpp"
#include "faults.hpp"
#include "jobs.hpp"
#include "lines.hpp"
#include "requests.hpp"
#include "serve.hpp"
#include "session.hpp"
#include "signals.hpp"

namespace runner {
namespace {

struct Options {
    std::string set, library;
    DeviceChoice device;
    LoadPolicy load;
    double connect_timeout = 15;
    unsigned teardown_limit = 30;
    nlohmann::json request = {{"op", "generate"}};  // what was asked for on the command line, as --serve takes it
    bool json = false, serve = false;
};

template <typename Number>
Number parse_number(const std::string& option, std::string_view text) {
    Number number{};
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (status == std::errc{} && end == text.data() + text.size()) return number;
    const char* expected = std::is_floating_point_v<Number> ? "a number" : "a whole number";
    throw CLI::ValidationError(option, std::string("expected ") + expected + ", found \"" + std::string(text) + "\"");
}

template <typename Number>
Number parse_within(const std::string& option, const std::string& text, Number low, Number high) {
    const auto number = parse_number<Number>(option, text);
    if (number >= low && number <= high) return number;
    const std::string expected = "expected " + std::to_string(low) + " to " + std::to_string(high);
    throw CLI::ValidationError(option, expected + ", found " + text);
}

nlohmann::json parse_tokens(const std::string& text) {
    nlohmann::json tokens = nlohmann::json::array();
    std::size_t start = 0, comma = 0;
    do {
        comma = text.find(',', start);
        const auto token = parse_number<std::int64_t>("--tokens", std::string_view(text).substr(start, comma - start));
        tokens.push_back(token < 0 ? nlohmann::json(token) : nlohmann::json(static_cast<std::uint64_t>(token)));
        start = comma + 1;
    } while (comma != std::string::npos);
    return tokens;
}

template <typename Number>
CLI::Option* add_request(CLI::App& app, Options& o, const char* option, const char* field, const char* help) {
    const auto take = [&o, option, field](const std::string& text) {
        o.request[field] = parse_number<Number>(option, text);
    };
    return app.add_option_function<std::string>(option, take, help);
}

void declare_generation(CLI::App& app, Options& o) {
    const auto take = [&o](const std::string& text) { o.request["tokens"] = parse_tokens(text); };
    const std::initializer_list<CLI::Option*> asked{
        app.add_option_function<std::string>("--tokens", take, "prompt: token ids, commas between them"),
        add_request<std::uint64_t>(app, o, "--max-tokens", "max_tokens", "tokens to generate"),
        add_request<double>(app, o, "--temperature", "temperature", "0: greedy"),
        add_request<std::uint64_t>(app, o, "--top-k", "top_k", "0: all"),
        add_request<double>(app, o, "--top-p", "top_p", "1: all"),
        add_request<std::uint64_t>(app, o, "--seed", "seed", ""),
        app.add_flag_function("--no-prefill", [&o](auto) { o.request["prefill"] = false; }, "token by token"),
        app.add_flag_function("--ignore-eos", [&o](auto) { o.request["ignore_eos"] = true; }),
        app.add_flag("--json", o.json, "JSON lines, as --serve answers")};
    auto* serve = app.add_flag("--serve", o.serve, "answer requests, JSON lines on standard input");
    for (CLI::Option* option : asked) serve->excludes(option);
}

void declare(CLI::App& app, Options& o) {
    const auto add = [&app](const char* option, auto& target, auto low, auto high, const char* help) {
        const auto take = [&target, option, low, high](const std::string& text) {
            target = parse_within(option, text, low, high);
        };
        app.add_option_function<std::string>(option, take, help);
    };
    app.add_option("SET", o.set, "directory of the engine set")->required();
    app.add_option("--lib", o.library, "libaxcl_rt.so to use (default: the loader's)");
    add("--device", o.device.id, 0, INT32_MAX, "device id as the library lists it (default: the first)");
    add("--connect-timeout", o.connect_timeout, 0.0, 3600.0, "seconds to wait for a device to appear");
    add("--load-pause", o.load.pause_milliseconds, 0, 60000, "milliseconds before a failed load is tried again");
    add("--teardown-limit", o.teardown_limit, 1U, 3600U, "seconds that giving the card back may take");
    declare_generation(app, o);
}

void work(const Library& library, Resources& resources, const Options& o, const SetConfig& config,
          const GenerateRequest& request) {
    Chain chain(resources, config);
    if (o.serve) return serve(library, chain, config);
    const auto emit = [&](std::int32_t token) {
        print_line(o.json ? token_answer(token).dump() : std::to_string(token));
    };
    const GenerateResult result = generate(chain, request, emit);
    if (o.json) print_line(done_answer(result).dump());
}

// Whatever ends the work, the card has to be given back in time.
void run(Options& o) {
    const SetConfig config = read_set_config(o.set);
    const GenerateRequest request = o.serve ? GenerateRequest{} : parse_generate(o.request, config);
    const Library library(o.library);
    install_crash_handler(library);
    o.device.connect_timeout_milliseconds = static_cast<int>(o.connect_timeout * 1000);
    const Session session(library, o.device);
    Resources resources(library, o.load);
    try {
        work(library, resources, o, config, request);
    } catch (const std::exception& error) {
        limit_teardown(one_line(error.what()));
        throw;
    }
    limit_teardown(library.path + ": the card is not given back");
}

int guarded(Options& o) {
    try {
        set_teardown_limit(o.teardown_limit);
        signals::install();
        run(o);
        return 0;
    } catch (const Interrupted& interrupted) {
        return kExitSignal + interrupted.signal;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", one_line(error.what()).c_str());
        return kExitFault;
    }
}

}  // namespace
}  // namespace runner

int main(int argc, char** argv) {
    CLI::App app("Runs an engine set on an NPU or on the simulator: token ids in, token ids out.", "engine-run");
    runner::Options options;
    runner::declare(app, options);
    try {
        app.parse(argc, argv);
        if (!options.serve && !options.request.contains("tokens")) throw CLI::RequiredError("--tokens or --serve");
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : runner::kExitUsage;
    }
    const int code = runner::guarded(options);
    std::fflush(nullptr);
    // Not exit(): destructors of a library whose threads still run end in terminate().
    std::_Exit(code);
}
