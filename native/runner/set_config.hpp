// A vendor model directory: config.json, post_config.json, and the files they name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "sampler.hpp"
#include "vocabulary.hpp"

namespace runner {

struct SetConfig {
    std::vector<std::filesystem::path> layers;
    std::vector<std::uint64_t> windows;  // per layer: how many positions back a token sees, itself included
    std::filesystem::path post;
    std::filesystem::path embedding;
    Vocabulary vocabulary;     // as many tokens as the embedding has rows
    std::uint64_t hidden = 0;  // columns of the embedding
    std::vector<std::int32_t> eos;
    Sampling sampling;  // what post_config.json asks for; greedy without one
};

// The window of a layer that sees everything.
inline constexpr std::uint64_t kWholeContext = UINT64_MAX;

// Reads `directory` and makes sure that every named file is there and the embedding has its size. Throws Fault.
SetConfig read_set_config(const std::filesystem::path& directory);

}  // namespace runner
