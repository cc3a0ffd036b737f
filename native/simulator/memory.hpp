// The card's memory: addresses that no host process can dereference, checked on every use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

namespace sim {

using Address = std::uint64_t;

struct Allocation {
    struct Release {
        void operator()(std::byte* bytes) const { std::free(bytes); }
    };
    Address address = 0;
    std::uint64_t size = 0;
    std::unique_ptr<std::byte, Release> bytes;
};

// A range inside one allocation, kept alive while it is used.
struct Span {
    std::shared_ptr<const Allocation> owner;
    std::uint64_t offset = 0;
    std::uint64_t size = 0;

    std::byte* data() const { return owner->bytes.get() + offset; }
};

struct MemoryUse {
    std::uint64_t used = 0, peak = 0, allocations = 0;
};

class DeviceMemory {
public:
    // 7040 MiB of an 8 GB card are free for contiguous memory [published for the AX8850 card].
    static constexpr std::uint64_t kCapacity = 7040ULL << 20U;

    // Non-canonical on x86-64 and beyond the user half on AArch64, top byte clear: touching it faults.
    static constexpr Address kBase = 0x0051'0000'0000'0000;
    static constexpr Address kEnd = 0x0052'0000'0000'0000;

    static bool owns(const void* pointer);

    // A fresh allocation filled with 0xFF (NaN in every float type), or 0 if the card is full.
    Address allocate(std::uint64_t size);
    bool release(Address address);
    // The range [address, address + size) if it lies inside one allocation.
    std::optional<Span> find(const void* pointer, std::uint64_t size) const;

    // Room taken by engines: counted, not addressable.
    bool reserve(std::uint64_t size);
    void unreserve(std::uint64_t size);

    void clear();
    MemoryUse use() const;

private:
    bool take(std::uint64_t size);

    mutable std::mutex mutex_;
    std::map<Address, std::shared_ptr<Allocation>> allocations_;
    Address next_ = kBase;
    MemoryUse use_;
};

}  // namespace sim
