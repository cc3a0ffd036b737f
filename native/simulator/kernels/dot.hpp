// Dot products in the order of docs/numerics.md: many of them side by side, each with one accumulator per run.
#pragma once

#include "kernels.hpp"
#include "vector.hpp"

namespace sim {
namespace {

// A unit is what one pass of a tile reads of a panel per k: two vectors of `kLanes` rows, of floats one from each half
// of the panel's 32. A panel type says where a unit starts and which rows its two vectors are.
constexpr std::size_t kUnits = kPanelColumns / 2 / kLanes;

template <std::size_t words>  // of a panel, per k
struct FloatPanel {
    using Word = std::uint32_t;

    static constexpr std::size_t size(std::size_t cols) { return cols * words; }
    static constexpr std::size_t start(std::size_t unit) { return unit * kLanes; }
    static constexpr std::size_t row(std::size_t unit, std::size_t half) { return unit * kLanes + half * kPanelColumns / 2; }
};

struct Bf16Panel : FloatPanel<kPanelColumns / 2> {
    static SIM_INLINE void load_pair(const Word* unit, std::size_t k, F& low, F& high) {
        const U pair = load<U>(unit + size(k));
        low = widen(pair << 16);
        high = widen(pair & 0xFFFF0000U);
    }
};

struct Fp32Panel : FloatPanel<kPanelColumns> {
    static SIM_INLINE void load_pair(const Word* unit, std::size_t k, F& low, F& high) {
        low = widen(load<U>(unit + size(k)));
        high = widen(load<U>(unit + size(k) + kPanelColumns / 2));
    }
};

template <std::size_t N, std::size_t T>
struct Tile {
    F sum[N][2][T];
};

template <std::size_t N, std::size_t T, class Visit>
SIM_INLINE void each(Visit visit) {
#pragma GCC unroll 16
    for (std::size_t n = 0; n < N; ++n) {
#pragma GCC unroll 16
        for (std::size_t t = 0; t < T; ++t) {
            visit(n, 0, t);
            visit(n, 1, t);
        }
    }
}

// One run: acc = fma(x[k], w[k], acc), ascending k, from +0. `x` holds T interleaved tokens.
template <class Panel, std::size_t N, std::size_t T>
SIM_INLINE void run_tile(const typename Panel::Word* const (&w)[N], const double* x, std::size_t first, std::size_t last, Tile<N, T>& out) {
    F acc[N][2][T] = {};
    for (std::size_t k = first; k < last; ++k) {
        F pair[N][2];
#pragma GCC unroll 16
        for (std::size_t n = 0; n < N; ++n) Panel::load_pair(w[n], k, pair[n][0], pair[n][1]);
        const double* xk = x + k * T;
        each<N, T>([&](std::size_t n, std::size_t half, std::size_t t) SIM_INLINE_LAMBDA {
            acc[n][half][t] = add_exact_product(broadcast(xk[t]), pair[n][half], acc[n][half][t]);
        });
    }
    each<N, T>([&](std::size_t n, std::size_t half, std::size_t t) SIM_INLINE_LAMBDA { out.sum[n][half][t] = acc[n][half][t]; });
}

template <std::size_t N, std::size_t T>
SIM_INLINE void add_tile(const Tile<N, T>& left, Tile<N, T>& right) {
    each<N, T>([&](std::size_t n, std::size_t half, std::size_t t) SIM_INLINE_LAMBDA {
        right.sum[n][half][t] = left.sum[n][half][t] + right.sum[n][half][t];
    });
}

// The fixed tree over runs, kept as a binary counter: level l holds the sum of 2^l runs, earlier runs on the left.
// `sum_run(first, last, sums)` adds up one run, columns [first, last).
template <std::size_t N, std::size_t T, class SumRun>
SIM_INLINE void dot_tile(std::size_t cols, Tile<N, T>& total, SumRun sum_run) {
    constexpr std::size_t max_levels = 14;  // 2^20 columns at most
    Tile<N, T> levels[max_levels];
    std::size_t runs = 0;
    for (std::size_t first = 0; first < cols; first += kRun, ++runs) {
        sum_run(first, first + kRun < cols ? first + kRun : cols, total);
        std::size_t level = 0;
        for (; (runs >> level & 1U) != 0; ++level) add_tile(levels[level], total);
        levels[level] = total;
    }
    std::size_t level = 0;
    while ((runs >> level & 1U) == 0) ++level;
    total = levels[level];
    while (runs >> ++level != 0) {
        if ((runs >> level & 1U) != 0) add_tile(levels[level], total);
    }
}

// Calls visit.template operator()<T>(first) for tiles of at most `Isa::tile_tokens` tokens that cover [0, tokens).
template <std::size_t T, class Visit>
SIM_INLINE void visit_tail(std::size_t tokens, std::size_t first, Visit& visit) {
    if (tokens == T) return visit.template operator()<T>(first);
    if constexpr (T > 1) visit_tail<T - 1>(tokens, first, visit);
}

template <class Visit>
SIM_INLINE void for_each_tile(std::size_t tokens, Visit visit) {
    std::size_t first = 0;
    for (; tokens - first >= Isa::tile_tokens; first += Isa::tile_tokens) visit.template operator()<Isa::tile_tokens>(first);
    if (first < tokens) visit_tail<Isa::tile_tokens - 1>(tokens - first, first, visit);
}

}  // namespace
}  // namespace sim
