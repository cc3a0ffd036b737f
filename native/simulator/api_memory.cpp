#include <cstdio>
#include <cstring>
#include <string>

#include "api.hpp"
#include "log.hpp"

using axcl::MemcpyKind;
using sim::Call;
using sim::counted;
using sim::Direction;
using sim::Runtime;

namespace {

// Lengths travel in 32 bits.
constexpr std::uint64_t kMaxTransfer = 1ULL << 32U;

axcl::Error not_allocated(const void* pointer, std::size_t size) {
    char text[96];
    std::snprintf(text, sizeof text, "memory %p of %zu bytes is not allocated by device %d", pointer, size, sim::kCard);
    sim::log_error(text);
    return axcl::kMemoryNotDevice;
}

axcl::Error allocate(Runtime& runtime, void** out, std::size_t size) {
    if (out == nullptr) return axcl::kMemoryNull;
    if (!runtime.is_bound()) return axcl::kNoBoundContext;
    if (size == 0) return axcl::kMemoryIllegal;
    const sim::Address address = runtime.memory.allocate(size);
    if (address == 0) return axcl::kMemoryNone;
    *out = reinterpret_cast<void*>(address);
    return axcl::kSuccess;
}

axcl::Error check_range(Runtime& runtime, const void* device, std::size_t size) {
    if (device == nullptr) return axcl::kMemoryNull;
    if (!runtime.is_bound()) return axcl::kNoBoundContext;
    return runtime.memory.find(device, size) ? axcl::kSuccess : not_allocated(device, size);
}

// Where one end of a copy is: a device range, or host memory as it stands.
struct End {
    std::optional<sim::Span> span;
    const void* host = nullptr;
    axcl::Error error = axcl::kSuccess;

    std::byte* data() const { return span ? span->data() : static_cast<std::byte*>(const_cast<void*>(host)); }
};

End find_end(Runtime& runtime, const void* pointer, std::size_t size, bool on_device) {
    if (!on_device) return {std::nullopt, pointer, sim::DeviceMemory::owns(pointer) ? axcl::kMemoryIllegal : axcl::kSuccess};
    auto span = runtime.memory.find(pointer, size);
    const axcl::Error error = span ? axcl::kSuccess : not_allocated(pointer, size);
    return {std::move(span), nullptr, error};
}

axcl::Error copy(Runtime& runtime, void* dst, const void* src, std::size_t size, MemcpyKind kind) {
    if (kind < MemcpyKind::host_to_host || kind > MemcpyKind::device_to_host_phy) return axcl::kMemoryIllegal;
    if (kind > MemcpyKind::device_to_device) return axcl::make_error(axcl::Sub::memory, axcl::id::kUnsupported);
    if (size == 0) return axcl::kSuccess;
    if (size >= kMaxTransfer) return axcl::kMemoryIllegal;
    const bool to_device = kind == MemcpyKind::host_to_device || kind == MemcpyKind::device_to_device;
    const bool from_device = kind == MemcpyKind::device_to_host || kind == MemcpyKind::device_to_device;
    const End to = find_end(runtime, dst, size, to_device), from = find_end(runtime, src, size, from_device);
    if (to.error != axcl::kSuccess) return to.error;
    if (from.error != axcl::kSuccess) return from.error;
    std::memmove(to.data(), from.data(), size);
    runtime.counters.copied(static_cast<Direction>(kind), size);
    return axcl::kSuccess;
}

axcl::Error fill(Runtime& runtime, void* device, std::uint8_t value, std::size_t size) {
    const auto span = runtime.memory.find(device, size);
    if (!span) return not_allocated(device, size);
    std::memset(span->data(), value, size);
    return axcl::kSuccess;
}

axcl::Error compare(Runtime& runtime, const void* left, const void* right, std::size_t size) {
    const auto a = runtime.memory.find(left, size), b = runtime.memory.find(right, size);
    if (!a) return not_allocated(left, size);
    if (!b) return not_allocated(right, size);
    const bool equal = std::memcmp(a->data(), b->data(), size) == 0;
    return equal ? axcl::kSuccess : axcl::make_error(axcl::Sub::memory, axcl::id::kUnknown);
}

// The stream to queue on, or why there is none.
axcl::Error find_stream(Runtime& runtime, axcl::Stream stream, std::shared_ptr<sim::StreamQueue>& out) {
    if (stream == nullptr) return axcl::kStreamNull;
    if (!runtime.is_bound()) return axcl::kNoBoundContext;
    out = runtime.streams.find(stream);
    return out == nullptr ? axcl::make_error(axcl::Sub::stream, axcl::id::kIllegalParam) : axcl::kSuccess;
}

axcl::Error queue(Runtime& runtime, axcl::Stream stream, sim::StreamQueue::Task task) {
    std::shared_ptr<sim::StreamQueue> found;
    const axcl::Error error = find_stream(runtime, stream, found);
    if (error == axcl::kSuccess) found->submit(std::move(task));
    return error;
}

}  // namespace

axcl::Error axclrtMalloc(void** out, std::size_t size, axcl::MallocPolicy) noexcept try {
    return allocate(counted(Call::axclrtMalloc), out, size);
} SIM_BOUNDARY(axclrtMalloc)

axcl::Error axclrtMallocCached(void** out, std::size_t size, axcl::MallocPolicy) noexcept try {
    return allocate(counted(Call::axclrtMallocCached), out, size);
} SIM_BOUNDARY(axclrtMallocCached)

axcl::Error axclrtFree(void* device) noexcept try {
    auto& runtime = counted(Call::axclrtFree);
    if (device == nullptr) return axcl::kMemoryNull;
    if (!runtime.is_bound()) return axcl::kNoBoundContext;
    return runtime.memory.release(reinterpret_cast<sim::Address>(device)) ? axcl::kSuccess : not_allocated(device, 0);
} SIM_BOUNDARY(axclrtFree)

axcl::Error axclrtMallocHost(void** out, std::size_t size) noexcept try {
    counted(Call::axclrtMallocHost);
    if (out == nullptr) return axcl::kMemoryNull;
    void* memory = std::malloc(size == 0 ? 1 : size);
    if (memory == nullptr) return axcl::kMemoryNone;
    *out = memory;
    return axcl::kSuccess;
} SIM_BOUNDARY(axclrtMallocHost)

axcl::Error axclrtFreeHost(void* host) noexcept try {
    counted(Call::axclrtFreeHost);
    std::free(host);
    return axcl::kSuccess;
} SIM_BOUNDARY(axclrtFreeHost)

axcl::Error axclrtMemFlush(void* device, std::size_t size) noexcept try {
    return check_range(counted(Call::axclrtMemFlush), device, size);
} SIM_BOUNDARY(axclrtMemFlush)

axcl::Error axclrtMemInvalidate(void* device, std::size_t size) noexcept try {
    return check_range(counted(Call::axclrtMemInvalidate), device, size);
} SIM_BOUNDARY(axclrtMemInvalidate)

axcl::Error axclrtMemset(void* device, std::uint8_t value, std::size_t size) noexcept try {
    auto& runtime = counted(Call::axclrtMemset);
    if (device == nullptr) return axcl::kMemoryNull;
    if (!runtime.is_bound()) return axcl::kNoBoundContext;
    return fill(runtime, device, value, size);
} SIM_BOUNDARY(axclrtMemset)

axcl::Error axclrtMemcpy(void* dst, const void* src, std::size_t size, MemcpyKind kind) noexcept try {
    auto& runtime = counted(Call::axclrtMemcpy);
    if (dst == nullptr || src == nullptr) return axcl::kMemoryNull;
    if (kind != MemcpyKind::host_to_host && !runtime.is_bound()) return axcl::kNoBoundContext;
    return copy(runtime, dst, src, size, kind);
} SIM_BOUNDARY(axclrtMemcpy)

axcl::Error axclrtMemcmp(const void* left, const void* right, std::size_t size) noexcept try {
    auto& runtime = counted(Call::axclrtMemcmp);
    if (left == nullptr || right == nullptr) return axcl::kMemoryNull;
    if (!runtime.is_bound()) return axcl::kNoBoundContext;
    return compare(runtime, left, right, size);
} SIM_BOUNDARY(axclrtMemcmp)

axcl::Error axclrtMemsetAsync(void* device, std::uint8_t value, std::size_t size, axcl::Stream stream) noexcept try {
    auto& runtime = counted(Call::axclrtMemsetAsync);
    if (device == nullptr) return axcl::kMemoryNull;
    return queue(runtime, stream, [&runtime, device, value, size] { return fill(runtime, device, value, size); });
} SIM_BOUNDARY(axclrtMemsetAsync)

axcl::Error axclrtMemcpyAsync(void* dst, const void* src, std::size_t size, MemcpyKind kind, axcl::Stream stream) noexcept try {
    auto& runtime = counted(Call::axclrtMemcpyAsync);
    if (dst == nullptr || src == nullptr) return axcl::kMemoryNull;
    if (kind == MemcpyKind::host_to_host) return axcl::kHostToHostAsync;
    return queue(runtime, stream, [&runtime, dst, src, size, kind] { return copy(runtime, dst, src, size, kind); });
} SIM_BOUNDARY(axclrtMemcpyAsync)

axcl::Error axclrtMemcmpAsync(const void* left, const void* right, std::size_t size, axcl::Stream stream) noexcept try {
    auto& runtime = counted(Call::axclrtMemcmpAsync);
    if (left == nullptr || right == nullptr) return axcl::kMemoryNull;
    return queue(runtime, stream, [&runtime, left, right, size] { return compare(runtime, left, right, size); });
} SIM_BOUNDARY(axclrtMemcmpAsync)
