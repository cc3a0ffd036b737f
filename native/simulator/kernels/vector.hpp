// The vector type of one instruction set. A file that includes this defines the struct `Isa` first, in namespace
// sim::{anonymous}: `lanes`, `name`, tile widths, and `fma`. Everything here has internal linkage, because each
// instruction set is compiled with its own flags and the linker must not merge what they share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#define SIM_INLINE inline __attribute__((always_inline))
#define SIM_INLINE_LAMBDA __attribute__((always_inline))

namespace sim {
namespace {

constexpr std::size_t kLanes = Isa::lanes;
using F = Isa::F;
typedef std::int32_t I __attribute__((vector_size(kLanes * 4)));
typedef std::uint32_t U __attribute__((vector_size(kLanes * 4)));
typedef std::uint16_t H __attribute__((vector_size(kLanes * 2)));

SIM_INLINE F broadcast(float x) { return x - F{}; }

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

SIM_INLINE F as_float(U bits) { return reinterpret_cast<F>(bits); }

// bf16 to float32, exact.
SIM_INLINE F widen(H half) { return as_float(__builtin_convertvector(half, U) << 16); }

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
    std::int32_t any = 0;
    for (std::size_t i = 0; i < kLanes; ++i) any |= differs[i];
    return any != 0;
}

// docs/numerics.md: constants and order are part of the definition.
SIM_INLINE F exp_lanes(F x) {
    const F low = broadcast(-104.0F), high = broadcast(88.72F);
    F clamped = x < low ? low : x;
    clamped = clamped > high ? high : clamped;
    clamped = x == x ? clamped : F{};
    // Adding and subtracting 1.5 * 2^23 rounds to an integer, ties to even.
    const F magic = broadcast(12582912.0F);
    const F n = (clamped * broadcast(1.44269504F) + magic) - magic;
    F r = Isa::fma(n, broadcast(-0.693145751953125F), clamped);
    r = Isa::fma(n, broadcast(-1.42860677e-6F), r);
    F p = broadcast(1.98412698e-4F);
    for (const float c : {1.38888889e-3F, 8.33333333e-3F, 4.16666667e-2F, 1.66666667e-1F, 0.5F, 1.0F, 1.0F}) {
        p = Isa::fma(p, r, broadcast(c));
    }
    const I whole = __builtin_convertvector(n, I);
    const I half = whole / 2;
    const F first = reinterpret_cast<F>((half + 127) << 23), second = reinterpret_cast<F>((whole - half + 127) << 23);
    F y = p * first * second;
    y = x < low ? F{} : y;
    y = x > high ? broadcast(__builtin_inff()) : y;
    return x == x ? y : x;
}

}  // namespace
}  // namespace sim
