// What a layer engine says about itself: dimensions and shape groups, from its IO info alone.
#pragma once

#include <cstdint>
#include <vector>

#include "engine.hpp"

namespace runner {

struct Group {
    std::uint32_t index = 0;
    std::uint32_t tokens = 0;   // m: rows per call; 1 is a decode group
    std::uint32_t history = 0;  // cache rows that a call may read; the current block starts at this mask column
    bool operator==(const Group&) const = default;
};

struct LayerShape {
    std::uint64_t hidden = 0;    // elements of a hidden row
    std::uint64_t kv_width = 0;  // elements of a cache row
    std::uint64_t cache_rows = 0;
    std::uint64_t context = 0;  // positions that can be computed; at most cache_rows
    std::vector<Group> groups;
    bool operator==(const LayerShape&) const = default;
};

// Throws Fault for an engine that is not a bf16 attention layer of the eight known tensors.
LayerShape read_layer_shape(const Engine& engine);

}  // namespace runner
