#include "elementwise.hpp"

#include <bit>

namespace sim {
namespace {

std::uint32_t rounded(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const bool nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
    return nan ? 0x7FC00000U : (bits + 0x7FFFU + (bits >> 16U & 1U)) & 0xFFFF0000U;
}

}  // namespace

void widen_bf16(const std::uint16_t* src, float* dst, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) dst[i] = std::bit_cast<float>(std::uint32_t{src[i]} << 16U);
}

void narrow_bf16(const float* src, std::uint16_t* dst, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) dst[i] = static_cast<std::uint16_t>(rounded(src[i]) >> 16U);
}

void round_floats(float* values, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) values[i] = std::bit_cast<float>(rounded(values[i]));
}

void add_floats(const float* left, const float* right, float* dst, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) dst[i] = left[i] + right[i];
}

}  // namespace sim
