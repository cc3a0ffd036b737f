// The vectors of one instruction set. A file that includes this defines the struct `Isa` first, in namespace
// sim::{anonymous}: `name`, `lanes`, tile widths, F (doubles) and G (as many floats), and on them `fma`, `widen` and
// `narrow` (GCC splits its own conversions in two). Everything here has internal linkage, because each instruction set
// is compiled with its own flags and the linker must not merge what they share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#define SIM_INLINE inline __attribute__((always_inline))
#define SIM_INLINE_LAMBDA __attribute__((always_inline))

namespace sim {
namespace {

constexpr std::size_t kLanes = Isa::lanes;
using F = Isa::F;  // doubles: all arithmetic inside an operation
using G = Isa::G;
typedef std::int64_t I __attribute__((vector_size(kLanes * 8)));
typedef std::uint32_t U __attribute__((vector_size(kLanes * 4)));
typedef std::uint16_t H __attribute__((vector_size(kLanes * 2)));

SIM_INLINE F broadcast(double x) { return x - F{}; }

template <class V>
SIM_INLINE V load(const void* from) {
    V v;
    std::memcpy(&v, from, sizeof v);
    return v;
}

template <class V>
SIM_INLINE void store(void* to, V v) {
    std::memcpy(to, &v, sizeof v);
}

// acc + a * b where the product is exact, as of two float32: fused or not, the same bits.
SIM_INLINE F add_exact_product(F a, F b, F acc) {
    if constexpr (Isa::fast_fma) return Isa::fma(a, b, acc);
    return a * b + acc;
}

SIM_INLINE F widen(G x) { return Isa::widen(x); }
SIM_INLINE F widen(U float_bits) { return widen(reinterpret_cast<G>(float_bits)); }
SIM_INLINE F widen(H half) { return widen(__builtin_convertvector(half, U) << 16); }
SIM_INLINE G narrow(F x) { return Isa::narrow(x); }

SIM_INLINE float widen(std::uint16_t half) {
    const std::uint32_t bits = std::uint32_t{half} << 16U;
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

// Round to nearest even; every NaN becomes the same one, so that no payload depends on the machine.
SIM_INLINE float round_bf16(float x) {
    std::uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    bits = (bits & 0x7FFFFFFFU) > 0x7F800000U ? 0x7FC00000U : (bits + 0x7FFFU + (bits >> 16U & 1U)) & 0xFFFF0000U;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

SIM_INLINE bool any_nan(F x) {
    const I differs = x != x;
    std::int64_t any = 0;
    for (std::size_t i = 0; i < kLanes; ++i) any |= differs[i];
    return any != 0;
}

// docs/numerics.md: constants and order are part of the definition.
SIM_INLINE F exp_lanes(F x) {
    const F low = broadcast(-700.0), high = broadcast(709.0);
    F clamped = x < low ? low : x;
    clamped = clamped > high ? high : clamped;
    clamped = x == x ? clamped : F{};
    // Adding 1.5 * 2^52 rounds to an integer, ties to even, and leaves that integer in the low bits.
    const F magic = broadcast(6755399441055744.0);
    const F shifted = clamped * broadcast(1.4426950408889634) + magic;
    const F n = shifted - magic;
    F r = Isa::fma(n, broadcast(-0x1.62e42feep-1), clamped);
    r = Isa::fma(n, broadcast(-0x1.a39ef35793c76p-33), r);
    F p = broadcast(1.0 / 6227020800.0);
    for (const double factorial : {479001600.0, 39916800.0, 3628800.0, 362880.0, 40320.0, 5040.0, 720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0}) {
        p = Isa::fma(p, r, broadcast(1.0 / factorial));
    }
    const I whole = reinterpret_cast<I>(shifted) - reinterpret_cast<I>(magic);
    F y = p * reinterpret_cast<F>((whole + 1023) << 52);
    y = x < low ? F{} : y;
    y = x > high ? broadcast(__builtin_inf()) : y;
    return x == x ? y : x;
}

}  // namespace
}  // namespace sim
