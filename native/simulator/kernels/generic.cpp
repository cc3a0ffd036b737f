#include <cmath>
#include <cstddef>

namespace sim {
namespace {

struct Isa {
    static constexpr const char* name = "generic";
    static constexpr std::size_t lanes = 2, tile_tokens = 4, decode_units = 2, value_vectors = 2;
    static constexpr bool fast_fma = false;
    typedef double F __attribute__((vector_size(16)));
    typedef float G __attribute__((vector_size(8)));
    static inline F fma(F a, F b, F c) {
        for (std::size_t i = 0; i < lanes; ++i) c[i] = std::fma(a[i], b[i], c[i]);
        return c;
    }
    static inline F widen(G x) { return __builtin_convertvector(x, F); }
    static inline G narrow(F x) { return __builtin_convertvector(x, G); }
};

}  // namespace
}  // namespace sim

#include "table.hpp"

namespace sim {

const KernelTable& generic_kernels() { return kTable; }

}  // namespace sim
