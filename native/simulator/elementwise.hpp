// Conversions and sums whose order does not matter: plain loops, the same bits everywhere.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sim {

void widen_bf16(const std::uint16_t* src, float* dst, std::size_t count);
// Round to nearest even; every NaN becomes 0x7FC0.
void narrow_bf16(const float* src, std::uint16_t* dst, std::size_t count);
void round_floats(float* values, std::size_t count);
void add_floats(const float* left, const float* right, float* dst, std::size_t count);

}  // namespace sim
