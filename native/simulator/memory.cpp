#include "memory.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace sim {
namespace {

constexpr std::uint64_t kPage = 4096;

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

bool DeviceMemory::owns(const void* pointer) {
    const auto address = reinterpret_cast<Address>(pointer);
    return address >= kBase && address < kEnd;
}

bool DeviceMemory::take(std::uint64_t size) {
    if (size > kCapacity - use_.used) return false;
    use_.used += size;
    use_.peak = std::max(use_.peak, use_.used);
    return true;
}

Address DeviceMemory::allocate(std::uint64_t size) {
    const std::lock_guard lock(mutex_);
    const std::uint64_t room = size > kCapacity ? size : round_up(size, kPage);
    if (!take(room)) return 0;
    auto allocation = std::make_shared<Allocation>();
    allocation->bytes.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, room)));
    if (allocation->bytes == nullptr) {
        use_.used -= room;
        return 0;
    }
    std::memset(allocation->bytes.get(), 0xFF, room);
    allocation->size = size;
    allocation->address = next_;
    // An unmapped page between neighbours: running off the end is found, not absorbed.
    next_ += room + kPage;
    use_.allocations += 1;
    const Address address = allocation->address;
    allocations_.emplace(address, std::move(allocation));
    return address;
}

bool DeviceMemory::release(Address address) {
    const std::lock_guard lock(mutex_);
    const auto found = allocations_.find(address);
    if (found == allocations_.end()) return false;
    use_.used -= round_up(found->second->size, kPage);
    allocations_.erase(found);
    return true;
}

std::optional<Span> DeviceMemory::find(const void* pointer, std::uint64_t size) const {
    const auto address = reinterpret_cast<Address>(pointer);
    const std::lock_guard lock(mutex_);
    const auto after = allocations_.upper_bound(address);
    if (after == allocations_.begin()) return std::nullopt;
    const auto& allocation = std::prev(after)->second;
    const std::uint64_t offset = address - allocation->address;
    if (offset >= allocation->size || size > allocation->size - offset) return std::nullopt;
    return Span{allocation, offset, size};
}

bool DeviceMemory::reserve(std::uint64_t size) {
    const std::lock_guard lock(mutex_);
    return take(size);
}

void DeviceMemory::unreserve(std::uint64_t size) {
    const std::lock_guard lock(mutex_);
    use_.used -= size;
}

void DeviceMemory::clear() {
    const std::lock_guard lock(mutex_);
    for (const auto& [address, allocation] : allocations_) use_.used -= round_up(allocation->size, kPage);
    allocations_.clear();
}

MemoryUse DeviceMemory::use() const {
    const std::lock_guard lock(mutex_);
    return use_;
}

}  // namespace sim
