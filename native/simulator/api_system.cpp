#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string>

#include "api.hpp"
#include "log.hpp"

using sim::Call;
using sim::counted;

namespace {

void not_connected(std::int32_t device) { sim::log_error("device " + std::to_string(device) + " is not connected"); }

}  // namespace

axcl::Error axclInit(const char*) noexcept try {
    return counted(Call::axclInit).init();
} SIM_BOUNDARY(axclInit)

axcl::Error axclFinalize() noexcept try {
    counted(Call::axclFinalize).finalize();
    return axcl::kSuccess;
} SIM_BOUNDARY(axclFinalize)

axcl::Error axclSetLogLevel(std::int32_t level) noexcept try {
    counted(Call::axclSetLogLevel);
    sim::set_log_level(level);
    return axcl::kSuccess;
} SIM_BOUNDARY(axclSetLogLevel)

void axclAppLog(std::int32_t level, const char* func, const char* file, std::uint32_t line, const char* format, ...) noexcept try {
    counted(Call::axclAppLog);
    if (level < sim::log_level() || func == nullptr || file == nullptr || format == nullptr) return;
    std::va_list arguments;
    va_start(arguments, format);
    char text[1024];
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    std::fprintf(stderr, "axcl_rt: %s %s:%u: %s\n", func, file, line, text);
} catch (...) {
    sim::caught("axclAppLog");
}

axcl::Error axclrtGetVersion(std::int32_t* major, std::int32_t* minor, std::int32_t* patch) noexcept try {
    counted(Call::axclrtGetVersion);
    if (major == nullptr || minor == nullptr || patch == nullptr) return axcl::kVersionNull;
    *major = 3;
    *minor = 10;
    *patch = 2;
    return axcl::kSuccess;
} SIM_BOUNDARY(axclrtGetVersion)

const char* axclrtGetFullVersion() noexcept try {
    counted(Call::axclrtGetFullVersion);
    return "V3.10.2_engineset_simulator";
} SIM_BOUNDARY(axclrtGetFullVersion)

const char* axclrtGetSocName() noexcept try {
    counted(Call::axclrtGetSocName);
    return "AX650N";
} SIM_BOUNDARY(axclrtGetSocName)

axcl::Error axclrtSetDevice(std::int32_t device) noexcept try {
    const axcl::Error error = counted(Call::axclrtSetDevice).set_device(device);
    if (error != axcl::kSuccess) not_connected(device);
    return error;
} SIM_BOUNDARY(axclrtSetDevice)

axcl::Error axclrtResetDevice(std::int32_t device) noexcept try {
    const axcl::Error error = counted(Call::axclrtResetDevice).reset_device(device);
    if (error == axcl::kDeviceInvalidId) not_connected(device);
    return error;
} SIM_BOUNDARY(axclrtResetDevice)

axcl::Error axclrtGetDevice(std::int32_t* device) noexcept try {
    const auto& runtime = counted(Call::axclrtGetDevice);
    if (device == nullptr) return axcl::kDeviceNull;
    if (!runtime.is_bound()) return axcl::kDeviceNoneActive;
    *device = sim::kCard;
    return axcl::kSuccess;
} SIM_BOUNDARY(axclrtGetDevice)

axcl::Error axclrtGetDeviceCount(std::uint32_t* count) noexcept try {
    const auto& runtime = counted(Call::axclrtGetDeviceCount);
    if (count == nullptr) return axcl::kDeviceNull;
    *count = static_cast<std::uint32_t>(runtime.cards());
    return axcl::kSuccess;
} SIM_BOUNDARY(axclrtGetDeviceCount)

axcl::Error axclrtGetDeviceList(axcl::DeviceList* list) noexcept try {
    auto& runtime = counted(Call::axclrtGetDeviceList);
    if (list == nullptr) return axcl::kDeviceNull;
    *list = axcl::DeviceList{};
    if (runtime.list_cards()) {
        list->num = 1;
        list->devices[0] = sim::kCard;
    }
    return axcl::kSuccess;
} SIM_BOUNDARY(axclrtGetDeviceList)

axcl::Error axclrtSynchronizeDevice() noexcept try {
    axcl::Error first = axcl::kSuccess;
    for (const auto& stream : counted(Call::axclrtSynchronizeDevice).streams.all()) {
        const axcl::Error error = *stream->wait(axcl::kInfiniteTimeout);
        if (first == axcl::kSuccess) first = error;
    }
    return first;
} SIM_BOUNDARY(axclrtSynchronizeDevice)

axcl::Error axclrtGetDeviceProperties(std::int32_t device, axcl::DeviceProperties* properties) noexcept try {
    const auto& runtime = counted(Call::axclrtGetDeviceProperties);
    if (properties == nullptr) return axcl::kDeviceNull;
    if (!runtime.is_connected(device)) return axcl::kDeviceQuery;
    *properties = axcl::DeviceProperties{};
    std::strncpy(properties->sw_version, axclrtGetFullVersion(), sizeof properties->sw_version - 1);
    constexpr std::uint64_t total = sim::DeviceMemory::kCapacity / 1024;
    properties->uid = 0x5E65E;
    properties->pci_bus_id = static_cast<std::uint32_t>(sim::kCard);
    properties->temperature = 45;
    properties->total_mem_size = properties->free_mem_size = 1U << 20U;
    properties->total_cmm_size = static_cast<std::uint32_t>(total);
    properties->free_cmm_size = static_cast<std::uint32_t>(total - runtime.memory.use().used / 1024);
    return axcl::kSuccess;
} SIM_BOUNDARY(axclrtGetDeviceProperties)

axcl::Error axclrtRebootDevice(std::int32_t device) noexcept try {
    return counted(Call::axclrtRebootDevice).reboot(device);
} SIM_BOUNDARY(axclrtRebootDevice)

axcl::Error axclrtCreateContext(axcl::Context* context, std::int32_t device) noexcept try {
    auto& runtime = counted(Call::axclrtCreateContext);
    if (context == nullptr) return axcl::kContextNull;
    if (!runtime.is_connected(device)) {
        not_connected(device);
        return axcl::kDeviceInvalidId;
    }
    auto created = std::make_shared<sim::DeviceContext>();
    *context = runtime.contexts.add(created);
    runtime.bind(created);
    return axcl::kSuccess;
} SIM_BOUNDARY(axclrtCreateContext)

axcl::Error axclrtDestroyContext(axcl::Context context) noexcept try {
    auto& runtime = counted(Call::axclrtDestroyContext);
    if (context == nullptr) return axcl::kContextNull;
    const auto found = runtime.contexts.find(context);
    if (found == nullptr) return axcl::kContextIllegal;
    if (found->is_default) return axcl::kContextDestroy;
    runtime.contexts.remove(context);
    return axcl::kSuccess;
} SIM_BOUNDARY(axclrtDestroyContext)

axcl::Error axclrtSetCurrentContext(axcl::Context context) noexcept try {
    auto& runtime = counted(Call::axclrtSetCurrentContext);
    if (context == nullptr) return axcl::kContextNull;
    const auto found = runtime.contexts.find(context);
    if (found == nullptr) return axcl::kContextIllegal;
    runtime.bind(found);
    return axcl::kSuccess;
} SIM_BOUNDARY(axclrtSetCurrentContext)

axcl::Error axclrtGetCurrentContext(axcl::Context* context) noexcept try {
    const auto& runtime = counted(Call::axclrtGetCurrentContext);
    if (context == nullptr) return axcl::kContextNull;
    *context = runtime.current().get();
    return *context == nullptr ? axcl::kNoBoundContext : axcl::kSuccess;
} SIM_BOUNDARY(axclrtGetCurrentContext)

axcl::Error axclrtGetDefaultContext(axcl::Context* context, std::int32_t device) noexcept try {
    const auto& runtime = counted(Call::axclrtGetDefaultContext);
    if (context == nullptr) return axcl::kContextNull;
    const auto found = runtime.default_context();
    if (found == nullptr || device != sim::kCard) return axcl::kDeviceNotActive;
    *context = found.get();
    return axcl::kSuccess;
} SIM_BOUNDARY(axclrtGetDefaultContext)

std::int32_t axclsimReport(char* buffer, std::uint64_t size) noexcept try {
    const std::string text = counted(Call::axclsimReport).report();
    if (buffer == nullptr || size <= text.size()) return -static_cast<std::int32_t>(text.size() + 1);
    std::memcpy(buffer, text.c_str(), text.size() + 1);
    return static_cast<std::int32_t>(text.size());
} SIM_BOUNDARY(axclsimReport)
