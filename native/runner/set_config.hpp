// A vendor model directory: config.json, post_config.json, and the files they name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "sampler.hpp"

namespace runner {

struct SetConfig {
    std::vector<std::filesystem::path> layers;
    std::filesystem::path post;
    std::filesystem::path embedding;
    std::uint64_t vocab = 0;   // rows of the embedding
    std::uint64_t hidden = 0;  // columns of the embedding
    std::vector<std::int32_t> eos;
    Sampling sampling;  // what post_config.json asks for; greedy without one
};

// Reads `directory` and makes sure that every named file is there and the embedding has its size. Throws Fault.
SetConfig read_set_config(const std::filesystem::path& directory);

}  // namespace runner
