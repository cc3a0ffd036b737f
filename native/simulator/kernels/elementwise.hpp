#pragma once

#include "kernels.hpp"
#include "vector.hpp"

namespace sim {
namespace {

// The fixed tree of docs/numerics.md over the runs of one dot product of a vector with itself.
double sum_of_squares(const float* x, std::size_t n) {
    double levels[32];
    double total = 0.0;
    std::size_t runs = 0;
    for (std::size_t first = 0; first < n; first += kRun, ++runs) {
        total = 0.0;
        for (std::size_t k = first; k < n && k < first + kRun; ++k) total += double{x[k]} * double{x[k]};
        std::size_t level = 0;
        for (; (runs >> level & 1U) != 0; ++level) total = levels[level] + total;
        levels[level] = total;
    }
    std::size_t level = 0;
    while ((runs >> level & 1U) == 0) ++level;
    total = levels[level];
    while (runs >> ++level != 0) {
        if ((runs >> level & 1U) != 0) total = levels[level] + total;
    }
    return total;
}

void norm(const Norm& job, std::size_t first_token, std::size_t last_token) {
    for (std::size_t at = first_token * job.width; at < last_token * job.width; at += job.n) {
        const double mean = sum_of_squares(job.src + at, job.n) / static_cast<double>(job.n);
        const double inverse = 1.0 / __builtin_sqrt(mean + double{job.eps});
        for (std::size_t i = 0; i < job.n; ++i) {
            job.dst[at + i] = static_cast<float>((double{job.src[at + i]} * inverse) * double{job.weight[i]});
        }
    }
}

// A position beyond the table poisons its token's row.
void rope(const Rope& job, std::size_t first_token, std::size_t last_token) {
    const std::size_t half = job.head_dim / 2;
    for (std::size_t t = first_token; t < last_token; ++t) {
        float* row = job.x + t * job.width;
        const bool known = job.indices[t] < job.positions;
        const std::size_t position = known ? job.indices[t] : 0;
        for (std::size_t head = 0; head < job.width; head += job.head_dim) {
            for (std::size_t i = 0; i < half; ++i) {
                const double c = job.cosine[position * half + i], s = job.sine[position * half + i];
                const double a = row[head + i], b = row[head + half + i];
                row[head + i] = known ? static_cast<float>(a * c - b * s) : __builtin_nanf("");
                row[head + half + i] = known ? static_cast<float>(b * c + a * s) : __builtin_nanf("");
            }
        }
    }
}

SIM_INLINE F silu(F x) { return x / (broadcast(1.0) + exp_lanes(-x)); }

SIM_INLINE F gelu_tanh(F x) {
    const F u = broadcast(0.7978845608028654) * (x + broadcast(0.044715) * (x * x * x));
    return x / (broadcast(1.0) + exp_lanes(broadcast(-2.0) * u));
}

// Loads two vectors of float32, stores act(gate) * up.
template <F (*activate)(F)>
SIM_INLINE void glu_lanes(const float* gate, const float* up, float* dst) {
    store(dst, narrow(activate(widen(load<G>(gate))) * widen(load<G>(up))));
}

template <F (*activate)(F)>
void glu_all(const float* gate, const float* up, float* dst, std::size_t count) {
    std::size_t i = 0;
    for (; count - i >= kLanes; i += kLanes) glu_lanes<activate>(gate + i, up + i, dst + i);
    if (i == count) return;
    float tail[2][kLanes] = {};
    std::memcpy(tail[0], gate + i, (count - i) * sizeof(float));
    std::memcpy(tail[1], up + i, (count - i) * sizeof(float));
    glu_lanes<activate>(tail[0], tail[1], tail[0]);
    std::memcpy(dst + i, tail[0], (count - i) * sizeof(float));
}

void glu(Activation activation, const float* gate, const float* up, float* dst, std::size_t count) {
    activation == Activation::silu ? glu_all<silu>(gate, up, dst, count) : glu_all<gelu_tanh>(gate, up, dst, count);
}

}  // namespace
}  // namespace sim
