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
    static inline __attribute__((always_inline)) F widen_bytes(const void* at) {
        return _mm256_cvtepi32_pd(_mm_cvtepi8_epi32(_mm_loadu_si32(at)));
    }
};

}  // namespace
}  // namespace sim

#include "table.hpp"

namespace sim {

const KernelTable& avx2_kernels() { return kTable; }

}  // namespace sim
