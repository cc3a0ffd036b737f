#include "serve.hpp"

#include <unistd.h>

#include <string>

#include "faults.hpp"
#include "lines.hpp"
#include "requests.hpp"
#include "shown.hpp"

namespace runner {
namespace {

using nlohmann::json;

void print(const json& answer) { print_line(answer.dump(-1, ' ', false, json::error_handler_t::replace)); }

json report(const Library& library) {
    if (library.axclsimReport == nullptr) throw Fault(library.path + ": has no report (optional symbol axclsimReport)");
    std::string text(4096, '\0');
    std::int32_t length = library.axclsimReport(text.data(), text.size());
    if (length < 0) {
        text.resize(static_cast<std::size_t>(-static_cast<std::int64_t>(length)));
        length = library.axclsimReport(text.data(), text.size());
    }
    if (length < 0) throw Fault(library.path + ": axclsimReport: its size changes");
    const json parsed = parse_json(text.substr(0, static_cast<std::size_t>(length)));
    if (parsed.is_discarded()) throw Fault(library.path + ": axclsimReport: is not JSON");
    return {{"report", parsed}};
}

json answer(const Library& library, Chain& chain, const SetConfig& config, const std::string& line) {
    const json request = parse_json(line);
    if (!request.is_object()) throw Fault("request is not a JSON object");
    const json asked = request.value("op", json());
    const std::string op = asked.is_string() ? asked.get<std::string>() : std::string();
    if (op == "generate") {
        const auto emit = [](std::int32_t token) { print(token_answer(token)); };
        return done_answer(generate(chain, parse_generate(request, config), emit));
    }
    if (op == "score") return score_answer(score(chain, parse_score(request)));
    if (op == "report") {
        check_report(request);
        return report(library);
    }
    throw Fault("op: expected generate, score or report, found " + shown(asked));
}

}  // namespace

void serve(const Library& library, Chain& chain, const SetConfig& config) {
    LineReader input(STDIN_FILENO);
    while (const auto line = input.next()) {
        try {
            print(answer(library, chain, config, *line));
        } catch (const DeviceFault& fault) {
            print(error_answer(fault.what()));
            throw;
        } catch (const OutputClosed&) {
            throw;
        } catch (const Fault& fault) {
            print(error_answer(fault.what()));
        }
    }
}

}  // namespace runner
