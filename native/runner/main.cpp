// engine-run: runs an engine set on whichever libaxcl_rt.so it is given.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <optional>
#include <string>

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

constexpr int kExitFault = 1, kExitUsage = 2, kExitSignal = 128;

struct Options {
    std::string set, library;
    DeviceChoice device;
    LoadPolicy load;
    double connect_timeout = 15;
    unsigned teardown_limit = 30;
    std::vector<std::int32_t> tokens;
    std::uint64_t max_tokens = 32, seed = 0;
    std::optional<double> temperature, top_p;
    std::optional<std::uint64_t> top_k;
    bool no_prefill = false, ignore_eos = false, json = false, serve = false;
};

void declare(CLI::App& app, Options& o) {
    app.add_option("SET", o.set, "directory of the engine set")->required();
    app.add_option("--lib", o.library, "libaxcl_rt.so to use (default: the loader's)");
    app.add_option("--device", o.device.id, "device id as the library lists it (default: the first)");
    app.add_option("--connect-timeout", o.connect_timeout, "seconds to wait for a device to appear")
        ->check(CLI::Range(0, 3600));
    app.add_option("--load-pause", o.load.pause_milliseconds, "milliseconds before a failed load is tried again")
        ->check(CLI::Range(0, 60000));
    app.add_option("--teardown-limit", o.teardown_limit, "seconds to give the card back after a failed call")
        ->check(CLI::Range(1, 3600));
    auto* tokens = app.add_option("--tokens", o.tokens, "prompt, token ids")->delimiter(',');
    app.add_option("--max-tokens", o.max_tokens, "tokens to generate");
    app.add_option("--temperature", o.temperature, "0: greedy");
    app.add_option("--top-k", o.top_k, "0: all");
    app.add_option("--top-p", o.top_p, "1: all");
    app.add_option("--seed", o.seed);
    app.add_flag("--no-prefill", o.no_prefill, "token by token");
    app.add_flag("--ignore-eos", o.ignore_eos);
    app.add_flag("--json", o.json, "JSON lines, as --serve answers");
    app.add_flag("--serve", o.serve, "answer requests, JSON lines on standard input")->excludes(tokens);
}

GenerateRequest request_of(const Options& o, const SetConfig& config) {
    GenerateRequest request{o.tokens, o.max_tokens, config.sampling, !o.no_prefill, {}};
    request.sampling.temperature = o.temperature.value_or(config.sampling.temperature);
    request.sampling.top_k = o.top_k.value_or(config.sampling.top_k);
    request.sampling.top_p = o.top_p.value_or(config.sampling.top_p);
    request.sampling.seed = o.seed;
    check_sampling(request.sampling);
    if (!o.ignore_eos) request.eos = config.eos;
    return request;
}

void run(Options& o) {
    const SetConfig config = read_set_config(o.set);
    const GenerateRequest request = request_of(o, config);
    const Library library(o.library);
    install_crash_handler(library);
    set_teardown_limit(o.teardown_limit);
    o.device.connect_timeout_milliseconds = static_cast<int>(o.connect_timeout * 1000);
    const Session session(library, o.device);
    Chain chain(library, config, o.load);
    if (o.serve) return serve(library, chain, config);
    const auto emit = [&](std::int32_t token) {
        print_line(o.json ? token_answer(token).dump() : std::to_string(token));
    };
    const GenerateResult result = generate(chain, request, emit);
    if (o.json) print_line(done_answer(result).dump());
}

int guarded(Options& o) {
    try {
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
        if (!options.serve && options.tokens.empty()) throw CLI::RequiredError("--tokens or --serve");
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : runner::kExitUsage;
    }
    const int code = runner::guarded(options);
    std::fflush(nullptr);
    // Not exit(): destructors of a library whose threads still run end in terminate().
    std::_Exit(code);
}
