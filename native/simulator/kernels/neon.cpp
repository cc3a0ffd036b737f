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
    static inline __attribute__((always_inline)) F widen_bytes(const std::int8_t* at) {
        return F{static_cast<double>(at[0]), static_cast<double>(at[1])};
    }
};

}  // namespace
}  // namespace sim

#include "table.hpp"

namespace sim {

const KernelTable& neon_kernels() { return kTable; }

}  // namespace sim
