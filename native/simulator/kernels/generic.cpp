#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace sim {
namespace {

// Signed bytes as doubles, by their bits.
constexpr auto kDoubles = [] {
    std::array<double, 256> values{};
    for (int i = 0; i < 256; ++i) values[static_cast<std::size_t>(i)] = i < 128 ? i : i - 256;
    return values;
}();

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
    static constexpr bool has_digits = false;  // there is no product of pairs: in order it is faster
    // Every second byte. Twice as fast as conversions, which baseline instruction sets do value by value.
    static inline F widen_bytes(const std::int8_t* at) {
        return F{kDoubles[static_cast<std::uint8_t>(at[0])], kDoubles[static_cast<std::uint8_t>(at[2])]};
    }
};

}  // namespace
}  // namespace sim

#include "table.hpp"

namespace sim {

const KernelTable& generic_kernels() { return kTable; }

}  // namespace sim
