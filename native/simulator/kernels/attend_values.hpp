// out[d] = sum over ascending t of p[t] * v[t][d], columns with p[t] == 0 skipped, divided by the sum of p.
#pragma once

#include "kernels.hpp"
#include "vector.hpp"

namespace sim {
namespace {

constexpr std::size_t kBlock = 16;         // columns whose zeros are counted together
constexpr std::size_t kValueQueries = 6;   // queries of one pass over the values

struct Values {
    const Attend& job;
    std::size_t kv_head;
    const double* p;            // [queries, padded columns]
    const std::uint8_t* zeros;  // [queries, padded columns / 16]
    const double* sums;
    float* out[kValueQueries];
};

SIM_INLINE F load_values(const std::uint16_t* at, std::size_t valid) {
    std::uint16_t part[kLanes] = {};
    if (valid >= kLanes) return widen(load<H>(at));
    std::memcpy(part, at, valid * sizeof *at);
    return widen(load<H>(part));
}

SIM_INLINE F load_values(const float* at, std::size_t valid) {
    float part[kLanes] = {};
    if (valid >= kLanes) return widen(load<G>(at));
    std::memcpy(part, at, valid * sizeof *at);
    return widen(load<G>(part));
}

// `rows` points at the first of D vectors of row 0; `valid` is how many of the last vector's values exist.
template <std::size_t Q, std::size_t D, bool kSkip, class T>
SIM_INLINE void add_rows(F (&acc)[Q][D], const double* p, std::size_t columns, const T* rows, std::size_t stride,
                         std::size_t count, std::size_t valid) {
    for (std::size_t t = 0; t < count; ++t) {
        F v[D];
#pragma GCC unroll 8
        for (std::size_t j = 0; j < D; ++j) v[j] = load_values(rows + t * stride + j * kLanes, j + 1 < D ? kLanes : valid);
#pragma GCC unroll 8
        for (std::size_t q = 0; q < Q; ++q) {
            const double weight = p[q * columns + t];
            if (kSkip && weight == 0.0) continue;
#pragma GCC unroll 8
            for (std::size_t j = 0; j < D; ++j) acc[q][j] = Isa::fma(broadcast(weight), v[j], acc[q][j]);
        }
    }
}

template <std::size_t Q, std::size_t D, class T>
SIM_INLINE void add_segment(F (&acc)[Q][D], const Values& values, std::size_t column, const T* rows, std::size_t count,
                            std::size_t valid) {
    const std::size_t columns = values.job.padded_columns(), stride = values.job.kv_heads * values.job.head_dim;
    for (std::size_t t = 0; t < count; t += kBlock) {
        const std::size_t n = count - t < kBlock ? count - t : kBlock;
        std::size_t zero = 0;
        for (std::size_t q = 0; q < Q; ++q) zero += values.zeros[(q * columns + column + t) / kBlock];
        if (zero == Q * kBlock) continue;
        const double* p = values.p + column + t;
        if (zero == 0) {
            add_rows<Q, D, false>(acc, p, columns, rows + t * stride, stride, n, valid);
        } else {
            add_rows<Q, D, true>(acc, p, columns, rows + t * stride, stride, n, valid);
        }
    }
}

template <std::size_t Q, std::size_t D>
__attribute__((noinline)) void sum_vectors(const Values& values, std::size_t d) {
    const Attend& job = values.job;
    const std::size_t offset = values.kv_head * job.head_dim + d;
    const std::size_t left = job.head_dim - d - (D - 1) * kLanes, valid = left < kLanes ? left : kLanes;
    F acc[Q][D] = {};
    add_segment<Q, D>(acc, values, 0, job.v_cache + offset, job.history, valid);
    add_segment<Q, D>(acc, values, job.padded_history(), job.v + offset, job.m, valid);
    for (std::size_t q = 0; q < Q; ++q) {
        for (std::size_t j = 0; j < D; ++j) {
            const G y = narrow(acc[q][j] / broadcast(values.sums[q]));
            std::memcpy(values.out[q] + d + j * kLanes, &y, (j + 1 < D ? kLanes : valid) * sizeof(float));
        }
    }
}

template <std::size_t Q>
void sum_queries(const Values& values, std::size_t count) {
    if constexpr (Q > 1) {
        if (count < Q) return sum_queries<Q - 1>(values, count);
    }
    std::size_t d = 0;
    for (; d + Isa::value_vectors * kLanes <= values.job.head_dim; d += Isa::value_vectors * kLanes) {
        sum_vectors<Q, Isa::value_vectors>(values, d);
    }
    for (; d < values.job.head_dim; d += kLanes) sum_vectors<Q, 1>(values, d);
}

void sum_values(const Values& values, std::size_t count) { sum_queries<kValueQueries>(values, count); }

}  // namespace
}  // namespace sim
