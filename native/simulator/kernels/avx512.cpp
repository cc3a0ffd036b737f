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
    // Every second byte.
    static inline __attribute__((always_inline)) F widen_bytes(const void* at) {
        const __m256i words = _mm256_cvtepi16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(at)));
        return _mm512_maskz_cvtepi32_pd(0xFF, _mm256_srai_epi32(_mm256_slli_epi32(words, 24), 24));
    }
    static constexpr bool has_digits = true;
    // Two columns of one row side by side, as 16 bits; their products with two digits, added.
    typedef int J __attribute__((vector_size(64)));  // a sum for each row of a unit
    static inline __attribute__((always_inline)) J load_pairs(const void* at) {
        return reinterpret_cast<J>(_mm512_cvtepi8_epi16(_mm256_loadu_si256(static_cast<const __m256i*>(at))));
    }
    static inline __attribute__((always_inline)) J multiply_pairs(J w, unsigned x) {
        return reinterpret_cast<J>(_mm512_madd_epi16(reinterpret_cast<__m512i>(w), _mm512_set1_epi32(static_cast<int>(x))));
    }
    static inline __attribute__((always_inline)) F widen_half(J sums, std::size_t half) {
        const auto low = __builtin_shufflevector(sums, sums, 0, 1, 2, 3, 4, 5, 6, 7);
        const auto high = __builtin_shufflevector(sums, sums, 8, 9, 10, 11, 12, 13, 14, 15);
        return _mm512_maskz_cvtepi32_pd(0xFF, reinterpret_cast<__m256i>(half == 0 ? low : high));
    }
};

}  // namespace
}  // namespace sim

#include "table.hpp"

namespace sim {

const KernelTable& avx512_kernels() { return kTable; }

}  // namespace sim
