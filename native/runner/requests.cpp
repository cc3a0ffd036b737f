#include "requests.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>

#include "faults.hpp"
#include "shown.hpp"

namespace runner {
namespace {

using nlohmann::json;

[[noreturn]] void wrong(const std::string& name, const char* expected, const json& found) {
    throw Fault(name + ": expected " + expected + ", found " + shown(found));
}

void check_keys(const json& request, std::initializer_list<std::string_view> known) {
    for (const auto& [key, value] : request.items()) {
        if (std::ranges::find(known, key) == known.end()) throw Fault("unknown key " + shown(key));
    }
}

bool flag(const json& request, const char* name, bool absent) {
    const json value = request.value(name, json(absent));
    if (!value.is_boolean()) wrong(name, "true or false", value);
    return value.get<bool>();
}

double number(const json& request, const char* name, double absent) {
    const json value = request.value(name, json(absent));
    if (!value.is_number()) wrong(name, "a number", value);
    return value.get<double>();
}

std::uint64_t count(const json& request, const char* name, std::uint64_t absent) {
    const json value = request.value(name, json(absent));
    if (!value.is_number_unsigned()) wrong(name, "a whole number from 0", value);
    return value.get<std::uint64_t>();
}

std::vector<std::int32_t> ids(const json& request, const char* name) {
    const json value = request.value(name, json());
    if (!value.is_array()) wrong(name, "a list of token ids", value);
    std::vector<std::int32_t> list;
    for (const json& id : value) {
        const bool fits =
            id.is_number_unsigned() && id.get<std::uint64_t>() <= std::numeric_limits<std::int32_t>::max();
        if (!fits) wrong(name, "token ids", id);
        list.push_back(id.get<std::int32_t>());
    }
    return list;
}

std::string hex_float(double value) {
    std::array<char, 40> text{};
    std::snprintf(text.data(), text.size(), "%a", value);
    return text.data();
}

}  // namespace

void check_sampling(const Sampling& sampling) {
    if (!std::isfinite(sampling.temperature) || sampling.temperature < 0) {
        wrong("temperature", "a finite number from 0", sampling.temperature);
    }
    if (!(sampling.top_p > 0 && sampling.top_p <= 1)) wrong("top_p", "above 0 and at most 1", sampling.top_p);
}

GenerateRequest parse_generate(const json& request, const SetConfig& config) {
    check_keys(request,
               {"op", "tokens", "max_tokens", "temperature", "top_k", "top_p", "seed", "prefill", "eos", "ignore_eos"});
    GenerateRequest parsed;
    parsed.tokens = ids(request, "tokens");
    parsed.max_tokens = count(request, "max_tokens", parsed.max_tokens);
    parsed.sampling = {number(request, "temperature", config.sampling.temperature),
                       count(request, "top_k", config.sampling.top_k), number(request, "top_p", config.sampling.top_p),
                       count(request, "seed", 0)};
    check_sampling(parsed.sampling);
    parsed.prefill = flag(request, "prefill", true);
    parsed.eos = request.contains("eos") ? ids(request, "eos") : config.eos;
    if (flag(request, "ignore_eos", false)) parsed.eos.clear();
    return parsed;
}

ScoreRequest parse_score(const json& request) {
    check_keys(request, {"op", "tokens", "logits", "prefill"});
    ScoreRequest parsed{ids(request, "tokens"), std::nullopt, flag(request, "prefill", true)};
    const json path = request.value("logits", json());
    if (path.is_null()) return parsed;
    if (!path.is_string() || path.get<std::string>().empty()) wrong("logits", "a file name", path);
    parsed.logits = path.get<std::string>();
    return parsed;
}

void check_report(const json& request) { check_keys(request, {"op"}); }

json token_answer(std::int32_t token) { return {{"token", token}}; }

json done_answer(const GenerateResult& result) {
    return {{"done",
             {{"reason", result.reason},
              {"prompt_tokens", result.prompt_tokens},
              {"generated", result.generated},
              {"prefill_s", result.prefill_s},
              {"decode_s", result.decode_s}}}};
}

json score_answer(const ScoreResult& result) {
    json nll = json::array();
    for (const double value : result.nll) nll.push_back(hex_float(value));
    return {{"nll", nll}, {"positions", result.positions}};
}

json error_answer(const std::string& what) { return {{"error", one_line(what)}}; }

}  // namespace runner
