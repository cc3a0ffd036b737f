// Runs of integer weights. The order of docs/numerics.md only shows where a sum is rounded. The integers are below 2^8
// and a run has 128 of them: where the bf16 values of a run are whole multiples, below 2^39, of one power of two, every
// partial sum fits a double's 53 bits, nothing is rounded, and any way of adding gives the same bits. Such a run is added
// in integers: values as digits of 16 bits, products of two columns at once, sums of 32 bits (2^15 * 2^7 * 128 = 2^29).
// Other runs (values 2^32 apart, infinities, NaN) are added in order.
#pragma once

#include "dot.hpp"

namespace sim {
namespace {

// 32 rows, two columns at a time: a byte of the first and a byte of the second for each row.
struct Int8Panel {
    using Word = std::int8_t;
    static constexpr std::size_t pair = 2 * kPanelColumns;  // bytes of two columns

    static constexpr std::size_t size(std::size_t cols) { return (cols + 1) / 2 * pair; }
    static constexpr std::size_t start(std::size_t unit) { return unit * 4 * kLanes; }
    static constexpr std::size_t row(std::size_t unit, std::size_t half) { return (2 * unit + half) * kLanes; }
    static SIM_INLINE void load_pair(const Word* unit, std::size_t k, F& low, F& high) {
        const Word* const at = unit + k / 2 * pair + k % 2;
        low = Isa::widen_bytes(at);
        high = Isa::widen_bytes(at + 2 * kLanes);
    }
};

// A bf16 as sign, significand and exponent: (-1)^negative * significand * 2^(exponent - 134).
struct Parts {
    std::uint32_t significand, exponent, negative;

    explicit Parts(float x) {
        std::uint32_t bits;
        std::memcpy(&bits, &x, sizeof bits);
        const std::uint32_t field = bits >> 23U & 0xFFU;
        exponent = field == 0 ? 1 : field;
        significand = (bits >> 16U & 0x7FU) | (field == 0 ? 0U : 0x80U);
        negative = bits >> 31U;
    }
};

constexpr std::uint32_t kInfinite = 255, kWidestSpread = 31;

// The least and the greatest exponent among the values of a run that are not 0.
struct Spread {
    std::uint32_t low = kInfinite, high = 0;

    Spread(const float* x, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            const Parts parts(round_bf16(x[i]));
            const std::uint32_t least = parts.significand == 0 ? kInfinite : parts.exponent;
            const std::uint32_t greatest = parts.significand == 0 ? 0 : parts.exponent;
            low = least < low ? least : low;
            high = greatest > high ? greatest : high;
        }
        if (high == 0) low = 1;
    }
    // Significands have 8 bits; digits are signed. 0: not to be had exactly.
    std::size_t digits() const {
        if (high == kInfinite || high > low + kWidestSpread) return 0;
        return high <= low + 7 ? 1 : high <= low + 23 ? 2 : 3;
    }
    double unit() const { return __builtin_ldexp(1.0, static_cast<int>(low) - 134); }
};

// The digits of the values of a run, lowest first, as many as a Value has. Two fit 32 bits, which vectors like better.
using RunDigits = std::int16_t[kMostDigits][kRun];

template <class Value>
void split_values(const float* x, std::size_t count, std::uint32_t low, RunDigits& digits) {
    for (std::size_t k = 0; k < count; ++k) {
        const Parts parts(round_bf16(x[k]));
        const std::uint32_t shift = parts.significand == 0 ? 0 : parts.exponent - low;
        Value value = Value{static_cast<std::int32_t>(parts.significand)} << shift;
        value = parts.negative != 0 ? -value : value;
        for (std::size_t d = 0; d < (sizeof(Value) == 4 ? 2 : kMostDigits); ++d) {
            digits[d][k] = static_cast<std::int16_t>(value);
            value = (value - digits[d][k]) >> 16;
        }
    }
}

// One run of one token: word [digit][pair of columns][T tokens], the first column in the low half.
template <std::size_t T>
void pack_digits(const float* x, std::size_t count, std::uint32_t low, std::size_t digits, std::uint32_t* words) {
    const std::size_t pairs = (count + 1) / 2;
    RunDigits split;
    digits < kMostDigits ? split_values<std::int32_t>(x, count, low, split) : split_values<std::int64_t>(x, count, low, split);
    for (std::size_t d = 0; d < digits && d < kMostDigits; ++d) {
        if (count % 2 != 0) split[d][count] = 0;
        for (std::size_t pair = 0; pair < pairs; ++pair) {
            std::memcpy(&words[(d * pairs + pair) * T], &split[d][2 * pair], sizeof *words);
        }
    }
}

// Runs of T tokens, those that can be: what integers need beside the doubles of pack_tokens.
template <std::size_t T>
void pack_runs(const float* src, std::size_t width, const Digits& out) {
    for (std::size_t first = 0, run = 0; first < width; first += kRun, ++run) {
        const std::size_t count = width - first < kRun ? width - first : kRun;
        std::uint32_t low[T];
        std::size_t digits = 1;
        for (std::size_t t = 0; t < T; ++t) {
            const Spread spread(src + t * width + first, count);
            low[t] = spread.low;
            out.units[run * T + t] = spread.unit();
            const std::size_t own = spread.digits();
            digits = own == 0 || digits == 0 ? 0 : own > digits ? own : digits;
        }
        out.counts[run] = static_cast<std::uint8_t>(digits);
        std::uint32_t* const words = out.words + first / 2 * kMostDigits * T;
        for (std::size_t t = 0; t < T && digits != 0; ++t) pack_digits<T>(src + t * width + first, count, low[t], digits, words + t);
    }
}

// An exact run: digit by digit from the highest, a double holds every sum on the way.
template <class Set, std::size_t N, std::size_t T>
SIM_INLINE void run_digits(const std::int8_t* const (&w)[N], std::size_t first, std::size_t last, const Digits& x,
                           Tile<N, T>& out) {
    using J = typename Set::J;
    const std::size_t pairs = (last - first + 1) / 2, run = first / kRun;
    const std::uint32_t* const words = x.words + first / 2 * kMostDigits * T;
    each<N, T>([&](std::size_t n, std::size_t half, std::size_t t) SIM_INLINE_LAMBDA { out.sum[n][half][t] = F{}; });
    for (std::size_t digit = x.counts[run]; digit-- > 0;) {
        J acc[N][T] = {};
        const std::uint32_t* word = words + digit * pairs * T;
        for (std::size_t pair = 0; pair < pairs; ++pair, word += T) {
#pragma GCC unroll 16
            for (std::size_t n = 0; n < N; ++n) {
                const auto both = Set::load_pairs(w[n] + (first / 2 + pair) * Int8Panel::pair);
#pragma GCC unroll 16
                for (std::size_t t = 0; t < T; ++t) acc[n][t] += Set::multiply_pairs(both, word[t]);
            }
        }
        each<N, T>([&](std::size_t n, std::size_t half, std::size_t t) SIM_INLINE_LAMBDA {
            F& sum = out.sum[n][half][t];
            sum = sum * broadcast(65536.0) + Set::widen_half(acc[n][t], half);
        });
    }
    each<N, T>([&](std::size_t n, std::size_t half, std::size_t t) SIM_INLINE_LAMBDA {
        out.sum[n][half][t] *= broadcast(x.units[run * T + t]);
    });
}

}  // namespace
}  // namespace sim
