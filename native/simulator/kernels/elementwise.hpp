#pragma once

#include "kernels.hpp"
#include "vector.hpp"

namespace sim {
namespace {

// The fixed tree of docs/numerics.md over the runs of one dot product of a vector with itself.
float sum_of_squares(const float* x, std::size_t n) {
    float levels[32];
    float total = 0.0F;
    std::size_t runs = 0;
    for (std::size_t first = 0; first < n; first += kRun, ++runs) {
        total = 0.0F;
        for (std::size_t k = first; k < n && k < first + kRun; ++k) total = __builtin_fmaf(x[k], x[k], total);
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
        const float mean = sum_of_squares(job.src + at, job.n) / static_cast<float>(job.n);
        const float inverse = 1.0F / __builtin_sqrtf(mean + job.eps);
        for (std::size_t i = 0; i < job.n; ++i) job.dst[at + i] = (job.src[at + i] * inverse) * job.weight[i];
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
                const float c = job.cosine[position * half + i], s = job.sine[position * half + i];
                const float a = row[head + i], b = row[head + half + i];
                row[head + i] = known ? __builtin_fmaf(a, c, -(b * s)) : __builtin_nanf("");
                row[head + half + i] = known ? __builtin_fmaf(b, c, a * s) : __builtin_nanf("");
            }
        }
    }
}

SIM_INLINE F silu(F x) { return x / (broadcast(1.0F) + exp_lanes(-x)); }

void glu(const float* gate, const float* up, float* dst, std::size_t count) {
    std::size_t i = 0;
    for (; count - i >= kLanes; i += kLanes) store(dst + i, silu(load<F>(gate + i)) * load<F>(up + i));
    if (i == count) return;
    float tail[2][kLanes] = {};
    std::memcpy(tail[0], gate + i, (count - i) * sizeof(float));
    std::memcpy(tail[1], up + i, (count - i) * sizeof(float));
    store(tail[0], silu(load<F>(tail[0])) * load<F>(tail[1]));
    std::memcpy(dst + i, tail[0], (count - i) * sizeof(float));
}

}  // namespace
}  // namespace sim
