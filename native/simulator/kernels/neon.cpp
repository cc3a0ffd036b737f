#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

namespace sim {
namespace {

struct Isa {
    static constexpr const char* name = "neon";
    static constexpr std::size_t lanes = 2, tile_tokens = 12, decode_units = 4, value_vectors = 4;
    static constexpr bool fast_fma = true;
    typedef double F __attribute__((vector_size(16)));
    typedef float G __attribute__((vector_size(8)));
    static inline __attribute__((always_inline)) F fma(F a, F b, F c) { return vfmaq_f64(c, a, b); }
    static inline __attribute__((always_inline)) F widen(G x) { return vcvt_f64_f32(x); }
    static inline __attribute__((always_inline)) G narrow(F x) { return vcvt_f32_f64(x); }
    // Every second byte.
    static inline __attribute__((always_inline)) F widen_bytes(const std::int8_t* at) {
        return F{static_cast<double>(at[0]), static_cast<double>(at[2])};
    }
    static constexpr bool has_digits = true;
    // Two columns of one row side by side, as 16 bits; their products with two digits, added.
    typedef int J __attribute__((vector_size(16)));  // a sum for each row of a unit
    static inline __attribute__((always_inline)) int16x8_t load_pairs(const std::int8_t* at) { return vmovl_s8(vld1_s8(at)); }
    static inline __attribute__((always_inline)) J multiply_pairs(int16x8_t w, std::uint32_t x) {
        const int16x8_t both = vreinterpretq_s16_u32(vdupq_n_u32(x));
        return vpaddq_s32(vmull_s16(vget_low_s16(w), vget_low_s16(both)), vmull_high_s16(w, both));
    }
    static inline __attribute__((always_inline)) F widen_half(J sums, std::size_t half) {
        return vcvtq_f64_s64(vmovl_s32(half == 0 ? vget_low_s32(sums) : vget_high_s32(sums)));
    }
};

}  // namespace
}  // namespace sim

#include "table.hpp"

namespace sim {

const KernelTable& neon_kernels() { return kTable; }

}  // namespace sim
