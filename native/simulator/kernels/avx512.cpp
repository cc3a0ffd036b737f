#include <immintrin.h>

#include <cstddef>

namespace sim {
namespace {

struct Isa {
    static constexpr const char* name = "avx512";
    static constexpr std::size_t lanes = 8, tile_tokens = 12, decode_units = 4, value_vectors = 4;
    static constexpr bool fast_fma = true;
    typedef double F __attribute__((vector_size(64)));
    typedef float G __attribute__((vector_size(32)));
    // The unmasked conversions of GCC 12 warn of an uninitialised value of their own.
    static inline __attribute__((always_inline)) F fma(F a, F b, F c) { return _mm512_fmadd_pd(a, b, c); }
    static inline __attribute__((always_inline)) F widen(G x) { return _mm512_maskz_cvtps_pd(0xFF, x); }
    static inline __attribute__((always_inline)) G narrow(F x) { return _mm512_maskz_cvtpd_ps(0xFF, x); }
    static inline __attribute__((always_inline)) F widen_bytes(const void* at) {
        return _mm512_maskz_cvtepi32_pd(0xFF, _mm256_cvtepi8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(at))));
    }
};

}  // namespace
}  // namespace sim

#include "table.hpp"

namespace sim {

const KernelTable& avx512_kernels() { return kTable; }

}  // namespace sim
