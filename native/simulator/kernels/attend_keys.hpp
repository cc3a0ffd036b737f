// Cache rows turned into a panel of columns: keys[k * 32 + t], float32, absent rows 0.
#pragma once

#include "dot.hpp"

namespace sim {
namespace {

typedef std::uint32_t Words __attribute__((vector_size(16)));

SIM_INLINE bool row_is_zero(const std::uint16_t* row, std::size_t d) {
    std::uint16_t bits = 0;
    for (std::size_t i = 0; i < d; ++i) bits = static_cast<std::uint16_t>(bits | row[i]);
    return (bits & 0x7FFFU) == 0;
}

bool all_zero(const std::uint16_t* rows, std::size_t stride, std::size_t count, std::size_t d) {
    for (std::size_t t = 0; t < count; ++t) {
        if (!row_is_zero(rows + t * stride, d)) return false;
    }
    return true;
}

SIM_INLINE void transpose(Words (&w)[4]) {
    const Words a = __builtin_shufflevector(w[0], w[1], 0, 4, 1, 5), b = __builtin_shufflevector(w[2], w[3], 0, 4, 1, 5);
    const Words c = __builtin_shufflevector(w[0], w[1], 2, 6, 3, 7), e = __builtin_shufflevector(w[2], w[3], 2, 6, 3, 7);
    w[0] = __builtin_shufflevector(a, b, 0, 1, 4, 5);
    w[1] = __builtin_shufflevector(a, b, 2, 3, 6, 7);
    w[2] = __builtin_shufflevector(c, e, 0, 1, 4, 5);
    w[3] = __builtin_shufflevector(c, e, 2, 3, 6, 7);
}

// 8 values of 4 bf16 rows: after the transpose word j of row t holds values 2j (low half) and 2j + 1.
SIM_INLINE void pack_block(const std::uint16_t* rows, std::size_t stride, float* keys) {
    Words w[4];
    for (std::size_t t = 0; t < 4; ++t) w[t] = load<Words>(rows + t * stride);
    transpose(w);
    for (std::size_t j = 0; j < 4; ++j) {
        store(keys + 2 * j * kPanelColumns, w[j] << 16);
        store(keys + (2 * j + 1) * kPanelColumns, w[j] & 0xFFFF0000U);
    }
}

SIM_INLINE void pack_block(const float* rows, std::size_t stride, float* keys) {
    for (std::size_t half = 0; half < 8; half += 4) {
        Words w[4];
        for (std::size_t t = 0; t < 4; ++t) w[t] = load<Words>(rows + t * stride + half);
        transpose(w);
        for (std::size_t j = 0; j < 4; ++j) store(keys + (half + j) * kPanelColumns, w[j]);
    }
}

SIM_INLINE float widen(float x) { return x; }

template <class T>
void pack_keys(const T* rows, std::size_t stride, std::size_t count, std::size_t d, float* keys) {
    if (count < kPanelColumns) std::memset(keys, 0, d * kPanelColumns * sizeof *keys);
    const std::size_t blocks = count / 4 * 4, whole = d / 8 * 8;
    for (std::size_t t = 0; t < blocks; t += 4) {
        for (std::size_t k = 0; k < whole; k += 8) pack_block(rows + t * stride + k, stride, keys + k * kPanelColumns + t);
    }
    for (std::size_t t = 0; t < count; ++t) {
        for (std::size_t k = t < blocks ? whole : 0; k < d; ++k) keys[k * kPanelColumns + t] = widen(rows[t * stride + k]);
    }
}

}  // namespace
}  // namespace sim
