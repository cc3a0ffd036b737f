#pragma once

#include <type_traits>

#include "integers.hpp"

namespace sim {
namespace {

// Tokens of a tile side by side: x[k * T + t].
void pack_tokens(Weights weights, const float* src, const Tokens& x, std::size_t first_token, std::size_t last_token) {
    for_each_tile(last_token - first_token, [&]<std::size_t T>(std::size_t tile_token) {
        const std::size_t first = first_token + tile_token;
        double* tile = x.x + first * x.cols;
        for (std::size_t t = 0; t < T; ++t) {
            const float* row = src + (first + t) * x.cols;
            for (std::size_t k = 0; k < x.cols; ++k) tile[k * T + t] = round_bf16(row[k]);
        }
        if (Isa::has_digits && weights == Weights::int8) pack_runs<T>(src + first * x.cols, x.cols, x.digits(first));
    });
}

SIM_INLINE void store_rows(const Matmul& job, std::size_t token, std::size_t row, F sum) {
    float* out = job.out + token * job.rows + row;
    if (row + kLanes <= job.rows) {
        store(out, narrow(job.bias == nullptr ? sum : sum + widen(load<G>(job.bias + row))));
        return;
    }
    for (std::size_t i = 0; row + i < job.rows; ++i) {
        out[i] = static_cast<float>(job.bias == nullptr ? sum[i] : sum[i] + double{job.bias[row + i]});
    }
}

// The scales of N units, applied to the sums of a run.
template <std::size_t N>
struct Scaled {
    const float* at[N];
    std::size_t group;

    Scaled(const Matmul& job, std::size_t unit) : group(job.group) {
        const std::size_t panel = ((job.x.cols - 1) / group + 1) * kPanelColumns;
        for (std::size_t n = 0; n < N; ++n) {
            at[n] = job.scales + (unit + n) / kUnits * panel + Int8Panel::row((unit + n) % kUnits, 0);
        }
    }
    template <std::size_t T>
    SIM_INLINE void operator()(std::size_t first, Tile<N, T>& run) const {
        const std::size_t entry = first / group * kPanelColumns;
        each<N, T>([&](std::size_t n, std::size_t half, std::size_t t) SIM_INLINE_LAMBDA {
            run.sum[n][half][t] *= widen(load<G>(at[n] + entry + Int8Panel::row(0, half)));
        });
    }
};

template <std::size_t N, std::size_t T>
SIM_INLINE void dot_integers(const Matmul& job, const std::int8_t* const (&w)[N], std::size_t unit, std::size_t token,
                             Tile<N, T>& total) {
    const double* const x = job.x.x + token * job.x.cols;
    const Digits digits = job.x.digits(token);
    const Scaled<N> scaled(job, unit);
    dot_tile(job.x.cols, total, [&](std::size_t first, std::size_t last, Tile<N, T>& run) SIM_INLINE_LAMBDA {
        bool exact = false;
        if constexpr (Isa::has_digits) {
            exact = digits.counts[first / kRun] != 0;
            if (exact) run_digits<Isa>(w, first, last, digits, run);
        }
        if (!exact) run_tile<Int8Panel>(w, x, first, last, run);
        scaled(first, run);
    });
}

// N units from `unit` on, for all tokens of one tile.
template <class Panel, std::size_t N, std::size_t T>
__attribute__((noinline)) void matmul_tile(const Matmul& job, std::size_t unit, std::size_t token) {
    const auto* const panels = static_cast<const typename Panel::Word*>(job.panels);
    const typename Panel::Word* w[N];
    for (std::size_t n = 0; n < N; ++n) {
        w[n] = panels + (unit + n) / kUnits * Panel::size(job.x.cols) + Panel::start((unit + n) % kUnits);
    }
    Tile<N, T> total;
    if constexpr (std::is_same_v<Panel, Int8Panel>) {
        dot_integers(job, w, unit, token, total);
    } else {
        dot_tile(job.x.cols, total, [&](std::size_t first, std::size_t last, Tile<N, T>& run) SIM_INLINE_LAMBDA {
            run_tile<Panel>(w, job.x.x + token * job.x.cols, first, last, run);
        });
    }
    for (std::size_t n = 0; n < N; ++n) {
        for (std::size_t half = 0; half < 2; ++half) {
            const std::size_t row = (unit + n) / kUnits * kPanelColumns + Panel::row((unit + n) % kUnits, half);
            for (std::size_t t = 0; t < T; ++t) store_rows(job, token + t, row, total.sum[n][half][t]);
        }
    }
}

// One token: several units at once, so that independent chains hide the latency of the multiply-add.
template <class Panel>
void matmul_range(const Matmul& job, std::size_t first_unit, std::size_t last_unit) {
    std::size_t unit = first_unit;
    if (job.x.tokens == 1) {
        for (; last_unit - unit >= Isa::decode_units; unit += Isa::decode_units) {
            matmul_tile<Panel, Isa::decode_units, 1>(job, unit, 0);
        }
    }
    for (; unit < last_unit; ++unit) {
        for_each_tile(job.x.tokens, [&]<std::size_t T>(std::size_t token) { matmul_tile<Panel, 1, T>(job, unit, token); });
    }
}

void matmul(const Matmul& job, std::size_t first_panel, std::size_t last_panel) {
    const std::size_t first = first_panel * kUnits, last = last_panel * kUnits;
    switch (job.weights) {
        case Weights::bf16: return matmul_range<Bf16Panel>(job, first, last);
        case Weights::fp32: return matmul_range<Fp32Panel>(job, first, last);
        case Weights::int8: return matmul_range<Int8Panel>(job, first, last);
    }
}

}  // namespace
}  // namespace sim
