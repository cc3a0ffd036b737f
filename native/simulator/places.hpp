// Where the elements of one part of a tensor stand in the weight blob.
#pragma once

#include <cstdint>
#include <vector>

#include "microcode.hpp"

namespace sim {

// Row r, column c at start[r] + cols[piece[r]][c], all proven to lie in the blob. Counted in bytes; for elements of
// 4 bits in half bytes, the low half of a byte first.
struct Places {
    std::vector<std::int64_t> start;
    std::vector<std::uint32_t> piece;
    std::vector<std::vector<std::int64_t>> cols;

    std::int64_t at(std::size_t row, std::size_t col) const { return start[row] + cols[piece[row]][col]; }
};

// Throws EngineFault for an element outside the `blob` bytes of weights or off its byte or half byte.
Places find_places(const TensorCode& tensor, Part part, std::size_t blob);

}  // namespace sim
