#include <immintrin.h>

#include <cstddef>

namespace sim {
namespace {

struct Isa {
    static constexpr const char* name = "avx2";
    static constexpr std::size_t lanes = 4, tile_tokens = 6, decode_units = 4, value_vectors = 2;
    static constexpr bool fast_fma = true;
    typedef double F __attribute__((vector_size(32)));
    typedef float G __attribute__((vector_size(16)));
    static inline __attribute__((always_inline)) F fma(F a, F b, F c) { return _mm256_fmadd_pd(a, b, c); }
    static inline __attribute__((always_inline)) F widen(G x) { return _mm256_cvtps_pd(x); }
    static inline __attribute__((always_inline)) G narrow(F x) { return _mm256_cvtpd_ps(x); }
    // Every second byte.
    static inline __attribute__((always_inline)) F widen_bytes(const void* at) {
        const __m128i words = _mm_cvtepi16_epi32(_mm_loadu_si64(at));
        return _mm256_cvtepi32_pd(_mm_srai_epi32(_mm_slli_epi32(words, 24), 24));
    }
    static constexpr bool has_digits = true;
    // Two columns of one row side by side, as 16 bits; their products with two digits, added.
    typedef int J __attribute__((vector_size(32)));  // a sum for each row of a unit
    static inline __attribute__((always_inline)) J load_pairs(const void* at) {
        return reinterpret_cast<J>(_mm256_cvtepi8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(at))));
    }
    static inline __attribute__((always_inline)) J multiply_pairs(J w, unsigned x) {
        return reinterpret_cast<J>(_mm256_madd_epi16(reinterpret_cast<__m256i>(w), _mm256_set1_epi32(static_cast<int>(x))));
    }
    static inline __attribute__((always_inline)) F widen_half(J sums, std::size_t half) {
        const auto all = reinterpret_cast<__m256i>(sums);
        return _mm256_cvtepi32_pd(half == 0 ? _mm256_castsi256_si128(all) : _mm256_extracti128_si256(all, 1));
    }
};

}  // namespace
}  // namespace sim

#include "table.hpp"

namespace sim {

const KernelTable& avx2_kernels() { return kTable; }

}  // namespace sim
