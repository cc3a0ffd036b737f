// What a request asks of the chain.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "chain.hpp"
#include "sampler.hpp"

namespace runner {

struct GenerateRequest {
    std::vector<std::int32_t> tokens;
    std::uint64_t max_tokens = 32;
    Sampling sampling;
    bool prefill = true;
    std::vector<std::int32_t> eos;  // empty: nothing stops but length and context
};

struct GenerateResult {
    std::string reason;  // "eos", "length" or "context"
    std::uint64_t prompt_tokens = 0, generated = 0;
    double prefill_s = 0;  // until the first logits
    double decode_s = 0;   // from there
};

struct ScoreRequest {
    std::vector<std::int32_t> tokens;
    std::optional<std::filesystem::path> logits;  // file for the raw bf16 logits, [tokens, rows of the head]
    bool prefill = true;
};

struct ScoreResult {
    std::vector<double> nll;  // -log p(tokens[i + 1] | tokens[..i]), one fewer than tokens; NaN for one that is not kept
    std::uint64_t positions = 0;
};

// `emit` gets every token as it is chosen, the one that ends the text included. Throws Fault, DeviceFault, Interrupted.
GenerateResult generate(Chain& chain, const GenerateRequest& request, const std::function<void(std::int32_t)>& emit);

ScoreResult score(Chain& chain, const ScoreRequest& request);

}  // namespace runner
