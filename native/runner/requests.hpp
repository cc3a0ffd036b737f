// Requests and answers as JSON.
#pragma once

#include <nlohmann/json.hpp>

#include "jobs.hpp"
#include "set_config.hpp"

namespace runner {

// What a request leaves out comes from the set. All throw Fault, naming the field.
GenerateRequest parse_generate(const nlohmann::json& request, const SetConfig& config);
ScoreRequest parse_score(const nlohmann::json& request);
void check_report(const nlohmann::json& request);

// Throws Fault unless temperature >= 0 and finite, 0 < top_p <= 1.
void check_sampling(const Sampling& sampling);

nlohmann::json token_answer(std::int32_t token);
nlohmann::json done_answer(const GenerateResult& result);
nlohmann::json score_answer(const ScoreResult& result);
nlohmann::json error_answer(const std::string& what);

}  // namespace runner
