// Weights in the order the kernels read them.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <unordered_map>

#include "microcode.hpp"

namespace sim {

inline constexpr std::size_t kPanelRows = 32;
inline constexpr std::size_t even(std::size_t count) { return count + count % 2; }

struct AlignedFree {
    void operator()(void* memory) const { std::free(memory); }
};
template <class T>
using Aligned = std::unique_ptr<T[], AlignedFree>;

// Uninitialised memory on a cache line. Throws std::bad_alloc.
template <class T>
Aligned<T> make_aligned(std::size_t count) {
    void* memory = std::aligned_alloc(64, (count * sizeof(T) + 63) / 64 * 64);
    if (memory == nullptr) throw std::bad_alloc();
    return Aligned<T>(static_cast<T*>(memory));
}

// `flat`: float32, row-major, for vectors and tables.
// `panels`: 32 rows at a time, absent rows 0, then k by k:
//   bf16: 16 words of 32 bits, word i = row i in the low half, row i + 16 in the high half
//   fp32: 32 floats, one per row
//   integers: 64 bytes for two k, two of them per row (an absent k is 0); behind all panels the scales, 32 floats a group
//   for each panel
enum class Packing { flat, panels };

struct Packed {
    Packing packing{};
    Codec codec{};
    std::size_t rows = 0, cols = 0, group = 0, size = 0;  // size in bytes
    Aligned<std::byte> data;

    const float* floats() const { return reinterpret_cast<const float*>(data.get()); }
    const float* scales() const {
        return reinterpret_cast<const float*>(data.get() + (rows + kPanelRows - 1) / kPanelRows * kPanelRows * even(cols));
    }
};

// Gathers `tensor` from `blob`. Throws EngineFault for an element outside the blob or off its byte, for a scale that is
// not above 0 and finite.
Packed pack_tensor(const TensorCode& tensor, Packing packing, Bytes blob);

// One packed copy per distinct content: groups whose pieces differ but whose weights are equal share memory.
class PackedStore {
public:
    explicit PackedStore(Bytes blob) : blob_(blob) {}

    std::shared_ptr<const Packed> get(const TensorCode& tensor, Packing packing);

private:
    struct Entry {
        TensorCode tensor;
        Packing packing;
        std::shared_ptr<const Packed> packed;
    };
    std::shared_ptr<const Packed> shared(Packed&& packed);

    Bytes blob_;
    std::unordered_multimap<std::size_t, Entry> entries_;                         // by the hash of the tensor's pieces
    std::unordered_multimap<std::size_t, std::shared_ptr<const Packed>> packed_;  // by the hash of their content
};

}  // namespace sim
