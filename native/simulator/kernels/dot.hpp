// Dot products in the order of docs/numerics.md: many of them side by side, each with one accumulator per run.
#pragma once

#include "kernels.hpp"
#include "vector.hpp"

namespace sim {
namespace {

// A unit is what one pass of a tile reads of a panel per k: `kLanes` rows of each half of the panel's 32.
constexpr std::size_t kUnits = kPanelColumns / 2 / kLanes;

struct Bf16Panel {
    using Word = std::uint32_t;
    static constexpr std::size_t words = kPanelColumns / 2;  // per k

    static SIM_INLINE void load_pair(const std::uint32_t* at, F& low, F& high) {
        const U pair = load<U>(at);
        low = widen(pair << 16);
        high = widen(pair & 0xFFFF0000U);
    }
};

struct Fp32Panel {
    using Word = std::uint32_t;
    static constexpr std::size_t words = kPanelColumns;

    static SIM_INLINE void load_pair(const std::uint32_t* at, F& low, F& high) {
        low = widen(load<U>(at));
        high = widen(load<U>(at + kPanelColumns / 2));
    }
};

struct Int8Panel {
    using Word = std::int8_t;
    static constexpr std::size_t words = kPanelColumns;

    static SIM_INLINE void load_pair(const std::int8_t* at, F& low, F& high) {
        low = Isa::widen_bytes(at);
        high = Isa::widen_bytes(at + kPanelColumns / 2);
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
        for (std::size_t n = 0; n < N; ++n) Panel::load_pair(w[n] + k * Panel::words, pair[n][0], pair[n][1]);
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

struct AsSummed {
    template <std::size_t N, std::size_t T>
    SIM_INLINE void operator()(std::size_t, Tile<N, T>&) const {}
};

// The fixed tree over runs, kept as a binary counter: level l holds the sum of 2^l runs, earlier runs on the left.
// `finish(first, sums)` has the last word on a run's sums; `first` is the run's first column.
template <class Panel, std::size_t N, std::size_t T, class Finish = AsSummed>
SIM_INLINE void dot_tile(const typename Panel::Word* const (&w)[N], const double* x, std::size_t cols, Tile<N, T>& total, Finish finish = {}) {
    constexpr std::size_t max_levels = 14;  // 2^20 columns at most
    Tile<N, T> levels[max_levels];
    std::size_t runs = 0;
    for (std::size_t first = 0; first < cols; first += kRun, ++runs) {
        run_tile<Panel>(w, x, first, first + kRun < cols ? first + kRun : cols, total);
        finish(first, total);
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
