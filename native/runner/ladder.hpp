// Which shape group computes the next tokens, and what its mask looks like.
#pragma once

#include <cstdint>
#include <span>

#include "shape.hpp"

namespace runner {

// Measured on cards: chunk groups of fewer rows return right K and V but leave `output` untouched.
inline constexpr std::uint32_t kMinChunkTokens = 64;

struct Chunk {
    const Group* group;
    std::uint32_t tokens;  // real ones; the group's other rows are padding
};

// The group for up to `waiting` tokens after `history` positions, with history < shape.context and waiting > 0.
// A chunk group takes as many tokens as it can; of those that take equally many, the one that reads least history.
// One token, `prefill` off, or a history beyond the ladder: the smallest decode group that holds the history.
Chunk next_chunk(const LayerShape& shape, std::uint64_t history, std::uint64_t waiting, bool prefill);

// bf16 mask of m rows x (cap + m) columns for a group with m = group.tokens and cap = group.history.
// Row r < tokens is the token at position p = history + r. It sees columns 0..history-1 and cap..cap+r, of these only
// positions p0 with p - p0 < window; rows of padding see nothing.
// With m = 1 this is the decode mask: the last column is the token itself.
void fill_mask(const Group& group, std::uint64_t history, std::uint32_t tokens, std::uint64_t window,
               std::span<std::uint16_t> mask);

}  // namespace runner
