// The C ABI of libaxcl_rt.so as far as a runner needs it: types, codes, and one table of functions.
// Provenance: signatures, sizes and codes were taken from the public V3.10.2 headers' documentation and from probing
// the library without a card; names of types and constants are ours, names of functions are the library's.
#pragma once

#include <cstddef>
#include <cstdint>

namespace axcl {

using Error = std::int32_t;
using Context = void*;
using Stream = void*;
using Event = void*;
using IoInfo = void*;
using Io = void*;
using EngineSet = std::uint32_t;
using ModelId = std::uint64_t;          // 0 is no model
using EngineContextId = std::uint64_t;  // 0 is no context

inline constexpr std::size_t kMaxDevices = 256;
inline constexpr std::size_t kMaxDims = 32;
inline constexpr std::int32_t kInfiniteTimeout = -1;

struct DeviceList {
    std::uint32_t num;
    std::int32_t devices[kMaxDevices];
};
static_assert(sizeof(DeviceList) == 1028);

// Memory sizes in KB, loads in percent x 100.
struct DeviceProperties {
    char sw_version[64];
    std::uint64_t uid;
    std::uint32_t pci_domain, pci_bus_id, pci_device_id;
    std::int32_t temperature;
    std::uint32_t total_mem_size, free_mem_size, total_cmm_size, free_cmm_size;
    std::uint32_t cpu_loading, npu_loading;
    std::uint32_t reserved[32];
};
static_assert(sizeof(DeviceProperties) == 240);

struct IoDims {
    std::int32_t dim_count;
    std::int32_t dims[kMaxDims];
};
static_assert(sizeof(IoDims) == 132);

// Fixed underlying types: a caller may pass any int, and the callee may look at it.
enum class MallocPolicy : std::int32_t { huge_first = 0, huge_only = 1, normal_only = 2, size_align = 3 };
enum class MemcpyKind : std::int32_t {
    host_to_host = 0,
    host_to_device = 1,
    device_to_host = 2,
    device_to_device = 3,
    host_phy_to_device = 4,
    device_to_host_phy = 5,
};
enum class VnpuKind : std::int32_t { disable = 0, enable = 1, big_little = 2, little_big = 3 };
enum class ModelKind : std::int32_t { one_core = 0, two_core = 1, three_core = 2 };
enum class DataType : std::int32_t {
    none = 0,
    int4 = 1,
    uint4 = 2,
    int8 = 3,
    uint8 = 4,
    int16 = 5,
    uint16 = 6,
    int32 = 7,
    uint32 = 8,
    int64 = 9,
    uint64 = 10,
    fp4 = 11,
    fp8 = 12,
    fp16 = 13,
    bf16 = 14,
    fp32 = 15,
    fp64 = 16,
};
enum class DataLayout : std::int32_t { none = 0, nhwc = 1, nchw = 2 };

// Code = 0x80000000 | module << 24 | 0x30 << 16 | sub << 8 | id; the runtime is module 0.
enum class Sub : std::uint32_t { device = 1, context = 2, stream = 3, task = 4, memory = 5, config = 6, engine = 7 };

constexpr Error make_error(Sub sub, std::uint32_t id) {
    return static_cast<Error>(0x80300000U | static_cast<std::uint32_t>(sub) << 8U | id);
}

// Ids that every sub uses.
namespace id {
inline constexpr std::uint32_t kUnknown = 0x01, kNullPointer = 0x02, kIllegalParam = 0x03, kUnsupported = 0x04;
inline constexpr std::uint32_t kTimeout = 0x05, kBusy = 0x06, kNoMemory = 0x07, kEncode = 0x08, kDecode = 0x09;
inline constexpr std::uint32_t kUnexpectedResponse = 0x0A, kOpen = 0x0B, kExecuteFailed = 0x0C;
}  // namespace id

inline constexpr Error kSuccess = 0;
inline constexpr Error kHostToHostAsync = 4;  // bare, without the 0x8030 frame
inline constexpr Error kVersionNull = 2;      // likewise
inline constexpr Error kInitNoCard = make_error(Sub::device, id::kOpen);
inline constexpr Error kDeviceNull = make_error(Sub::device, id::kNullPointer);
inline constexpr Error kDeviceQuery = make_error(Sub::device, 0x80);
inline constexpr Error kDeviceNotActive = make_error(Sub::device, 0x83);
inline constexpr Error kDeviceInvalidId = make_error(Sub::device, 0x84);
inline constexpr Error kDeviceNoneActive = make_error(Sub::device, 0x85);
inline constexpr Error kDeviceReboot = make_error(Sub::device, 0x87);
inline constexpr Error kContextNull = make_error(Sub::context, id::kNullPointer);
inline constexpr Error kContextIllegal = make_error(Sub::context, id::kIllegalParam);
inline constexpr Error kContextDestroy = make_error(Sub::context, 0x82);
inline constexpr Error kNoBoundContext = make_error(Sub::context, 0x84);
inline constexpr Error kStreamNull = make_error(Sub::stream, id::kNullPointer);
inline constexpr Error kStreamDestroy = make_error(Sub::stream, 0x82);
inline constexpr Error kMemoryNull = make_error(Sub::memory, id::kNullPointer);
inline constexpr Error kMemoryIllegal = make_error(Sub::memory, id::kIllegalParam);
inline constexpr Error kMemoryNone = make_error(Sub::memory, id::kNoMemory);
inline constexpr Error kMemoryExecute = make_error(Sub::memory, id::kExecuteFailed);
inline constexpr Error kMemoryNotDevice = make_error(Sub::memory, 0x81);
inline constexpr Error kEngineNull = make_error(Sub::engine, id::kNullPointer);
inline constexpr Error kEngineIllegal = make_error(Sub::engine, id::kIllegalParam);
inline constexpr Error kEngineUnsupported = make_error(Sub::engine, id::kUnsupported);
inline constexpr Error kEngineNoMemory = make_error(Sub::engine, id::kNoMemory);
inline constexpr Error kEngineDecode = make_error(Sub::engine, id::kDecode);
inline constexpr Error kEngineExecute = make_error(Sub::engine, id::kExecuteFailed);
inline constexpr Error kEngineIndex = make_error(Sub::engine, 0x81);

static_assert(kNoBoundContext == static_cast<Error>(0x80300284U));

}  // namespace axcl

// X(return type, name, (arguments)): functions that every version of the library exports.
#define AXCL_FUNCTIONS(X)                                                                                            \
    X(axcl::Error, axclInit, (const char* config))                                                                   \
    X(axcl::Error, axclFinalize, ())                                                                                 \
    X(axcl::Error, axclSetLogLevel, (std::int32_t level))                                                            \
    X(void, axclAppLog,                                                                                              \
      (std::int32_t level, const char* func, const char* file, std::uint32_t line, const char* format, ...))         \
    X(axcl::Error, axclrtGetVersion, (std::int32_t* major, std::int32_t* minor, std::int32_t* patch))                \
    X(const char*, axclrtGetFullVersion, ())                                                                         \
    X(const char*, axclrtGetSocName, ())                                                                             \
    X(axcl::Error, axclrtSetDevice, (std::int32_t device))                                                           \
    X(axcl::Error, axclrtResetDevice, (std::int32_t device))                                                         \
    X(axcl::Error, axclrtGetDevice, (std::int32_t * device))                                                         \
    X(axcl::Error, axclrtGetDeviceCount, (std::uint32_t * count))                                                    \
    X(axcl::Error, axclrtGetDeviceList, (axcl::DeviceList * list))                                                   \
    X(axcl::Error, axclrtSynchronizeDevice, ())                                                                      \
    X(axcl::Error, axclrtGetDeviceProperties, (std::int32_t device, axcl::DeviceProperties* properties))             \
    X(axcl::Error, axclrtCreateContext, (axcl::Context * context, std::int32_t device))                              \
    X(axcl::Error, axclrtDestroyContext, (axcl::Context context))                                                    \
    X(axcl::Error, axclrtSetCurrentContext, (axcl::Context context))                                                 \
    X(axcl::Error, axclrtGetCurrentContext, (axcl::Context * context))                                               \
    X(axcl::Error, axclrtCreateStream, (axcl::Stream * stream))                                                      \
    X(axcl::Error, axclrtDestroyStream, (axcl::Stream stream))                                                       \
    X(axcl::Error, axclrtDestroyStreamForce, (axcl::Stream stream))                                                  \
    X(axcl::Error, axclrtSynchronizeStream, (axcl::Stream stream))                                                   \
    X(axcl::Error, axclrtSynchronizeStreamWithTimeout, (axcl::Stream stream, std::int32_t milliseconds))             \
    X(axcl::Error, axclrtCreateEvent, (axcl::Event * event))                                                         \
    X(axcl::Error, axclrtDestroyEvent, (axcl::Event event))                                                          \
    X(axcl::Error, axclrtRecordEvent, (axcl::Event event, axcl::Stream stream))                                      \
    X(axcl::Error, axclrtStreamWaitEvent, (axcl::Stream stream, axcl::Event event))                                  \
    X(axcl::Error, axclrtStreamWaitEventWithTimeout,                                                                 \
      (axcl::Stream stream, axcl::Event event, std::int32_t milliseconds))                                           \
    X(axcl::Error, axclrtMalloc, (void** out, std::size_t size, axcl::MallocPolicy policy))                          \
    X(axcl::Error, axclrtMallocCached, (void** out, std::size_t size, axcl::MallocPolicy policy))                    \
    X(axcl::Error, axclrtFree, (void* device))                                                                       \
    X(axcl::Error, axclrtMallocHost, (void** out, std::size_t size))                                                 \
    X(axcl::Error, axclrtFreeHost, (void* host))                                                                     \
    X(axcl::Error, axclrtMemFlush, (void* device, std::size_t size))                                                 \
    X(axcl::Error, axclrtMemInvalidate, (void* device, std::size_t size))                                            \
    X(axcl::Error, axclrtMemset, (void* device, std::uint8_t value, std::size_t size))                               \
    X(axcl::Error, axclrtMemcpy, (void* dst, const void* src, std::size_t size, axcl::MemcpyKind kind))              \
    X(axcl::Error, axclrtMemcmp, (const void* left, const void* right, std::size_t size))                            \
    X(axcl::Error, axclrtMemsetAsync, (void* device, std::uint8_t value, std::size_t size, axcl::Stream stream))     \
    X(axcl::Error, axclrtMemcpyAsync,                                                                                \
      (void* dst, const void* src, std::size_t size, axcl::MemcpyKind kind, axcl::Stream stream))                    \
    X(axcl::Error, axclrtMemcmpAsync, (const void* left, const void* right, std::size_t size, axcl::Stream stream))  \
    X(axcl::Error, axclrtEngineInit, (axcl::VnpuKind kind))                                                          \
    X(axcl::Error, axclrtEngineFinalize, ())                                                                         \
    X(axcl::Error, axclrtEngineGetVNpuKind, (axcl::VnpuKind * kind))                                                 \
    X(axcl::Error, axclrtEngineLoadFromFile, (const char* path, axcl::ModelId* model))                               \
    X(axcl::Error, axclrtEngineLoadFromMem, (const void* device, std::uint64_t size, axcl::ModelId* model))          \
    X(axcl::Error, axclrtEngineUnload, (axcl::ModelId model))                                                        \
    X(const char*, axclrtEngineGetModelCompilerVersion, (axcl::ModelId model))                                       \
    X(axcl::Error, axclrtEngineSetAffinity, (axcl::ModelId model, axcl::EngineSet set))                              \
    X(axcl::Error, axclrtEngineGetAffinity, (axcl::ModelId model, axcl::EngineSet* set))                             \
    X(axcl::Error, axclrtEngineSetContextAffinity,                                                                   \
      (axcl::ModelId model, axcl::EngineContextId context, axcl::EngineSet set))                                     \
    X(axcl::Error, axclrtEngineGetContextAffinity,                                                                   \
      (axcl::ModelId model, axcl::EngineContextId context, axcl::EngineSet* set))                                    \
    X(axcl::Error, axclrtEngineGetUsage, (const char* path, std::int64_t* sys, std::int64_t* cmm))                   \
    X(axcl::Error, axclrtEngineGetUsageFromMem,                                                                      \
      (const void* device, std::uint64_t size, std::int64_t* sys, std::int64_t* cmm))                                \
    X(axcl::Error, axclrtEngineGetUsageFromModelId, (axcl::ModelId model, std::int64_t* sys, std::int64_t* cmm))     \
    X(axcl::Error, axclrtEngineGetModelType, (const char* path, axcl::ModelKind* kind))                              \
    X(axcl::Error, axclrtEngineGetModelTypeFromMem,                                                                  \
      (const void* device, std::uint64_t size, axcl::ModelKind* kind))                                               \
    X(axcl::Error, axclrtEngineGetModelTypeFromModelId, (axcl::ModelId model, axcl::ModelKind* kind))                \
    X(axcl::Error, axclrtEngineGetIOInfo, (axcl::ModelId model, axcl::IoInfo* info))                                 \
    X(axcl::Error, axclrtEngineDestroyIOInfo, (axcl::IoInfo info))                                                   \
    X(axcl::Error, axclrtEngineGetShapeGroupsCount, (axcl::IoInfo info, std::int32_t* count))                        \
    X(std::uint32_t, axclrtEngineGetNumInputs, (axcl::IoInfo info))                                                  \
    X(std::uint32_t, axclrtEngineGetNumOutputs, (axcl::IoInfo info))                                                 \
    X(std::uint64_t, axclrtEngineGetInputSizeByIndex, (axcl::IoInfo info, std::uint32_t group, std::uint32_t index)) \
    X(std::uint64_t, axclrtEngineGetOutputSizeByIndex,                                                               \
      (axcl::IoInfo info, std::uint32_t group, std::uint32_t index))                                                 \
    X(const char*, axclrtEngineGetInputNameByIndex, (axcl::IoInfo info, std::uint32_t index))                        \
    X(const char*, axclrtEngineGetOutputNameByIndex, (axcl::IoInfo info, std::uint32_t index))                       \
    X(std::int32_t, axclrtEngineGetInputIndexByName, (axcl::IoInfo info, const char* name))                          \
    X(std::int32_t, axclrtEngineGetOutputIndexByName, (axcl::IoInfo info, const char* name))                         \
    X(axcl::Error, axclrtEngineGetInputDims,                                                                         \
      (axcl::IoInfo info, std::uint32_t group, std::uint32_t index, axcl::IoDims* dims))                             \
    X(axcl::Error, axclrtEngineGetOutputDims,                                                                        \
      (axcl::IoInfo info, std::uint32_t group, std::uint32_t index, axcl::IoDims* dims))                             \
    X(axcl::Error, axclrtEngineGetInputDataType, (axcl::IoInfo info, std::uint32_t index, axcl::DataType* type))     \
    X(axcl::Error, axclrtEngineGetOutputDataType, (axcl::IoInfo info, std::uint32_t index, axcl::DataType* type))    \
    X(axcl::Error, axclrtEngineGetInputDataLayout,                                                                   \
      (axcl::IoInfo info, std::uint32_t index, axcl::DataLayout* layout))                                            \
    X(axcl::Error, axclrtEngineGetOutputDataLayout,                                                                  \
      (axcl::IoInfo info, std::uint32_t index, axcl::DataLayout* layout))                                            \
    X(axcl::Error, axclrtEngineCreateIO, (axcl::IoInfo info, axcl::Io* io))                                          \
    X(axcl::Error, axclrtEngineDestroyIO, (axcl::Io io))                                                             \
    X(axcl::Error, axclrtEngineSetInputBufferByIndex,                                                                \
      (axcl::Io io, std::uint32_t index, const void* device, std::uint64_t size))                                    \
    X(axcl::Error, axclrtEngineSetOutputBufferByIndex,                                                               \
      (axcl::Io io, std::uint32_t index, const void* device, std::uint64_t size))                                    \
    X(axcl::Error, axclrtEngineSetInputBufferByName,                                                                 \
      (axcl::Io io, const char* name, const void* device, std::uint64_t size))                                       \
    X(axcl::Error, axclrtEngineSetOutputBufferByName,                                                                \
      (axcl::Io io, const char* name, const void* device, std::uint64_t size))                                       \
    X(axcl::Error, axclrtEngineGetInputBufferByIndex,                                                                \
      (axcl::Io io, std::uint32_t index, void** device, std::uint64_t* size))                                        \
    X(axcl::Error, axclrtEngineGetOutputBufferByIndex,                                                               \
      (axcl::Io io, std::uint32_t index, void** device, std::uint64_t* size))                                        \
    X(axcl::Error, axclrtEngineGetInputBufferByName,                                                                 \
      (axcl::Io io, const char* name, void** device, std::uint64_t* size))                                           \
    X(axcl::Error, axclrtEngineGetOutputBufferByName,                                                                \
      (axcl::Io io, const char* name, void** device, std::uint64_t* size))                                           \
    X(axcl::Error, axclrtEngineSetDynamicBatchSize, (axcl::Io io, std::uint32_t batch))                              \
    X(axcl::Error, axclrtEngineCreateContext, (axcl::ModelId model, axcl::EngineContextId* context))                 \
    X(axcl::Error, axclrtEngineExecute,                                                                              \
      (axcl::ModelId model, axcl::EngineContextId context, std::uint32_t group, axcl::Io io))                        \
    X(axcl::Error, axclrtEngineExecuteAsync,                                                                         \
      (axcl::ModelId model, axcl::EngineContextId context, std::uint32_t group, axcl::Io io, axcl::Stream stream))

// Exported by some versions and absent from the public headers: resolve them as optional.
#define AXCL_OPTIONAL_FUNCTIONS(X)                                  \
    X(axcl::Error, axclrtRebootDevice, (std::int32_t device))       \
    X(axcl::Error, axclrtGetDefaultContext, (axcl::Context * context, std::int32_t device))

// The simulator's own: writes a NUL-terminated JSON text; returns its length, or -(bytes needed) when `size` is too small.
#define AXCL_SIMULATOR_FUNCTIONS(X) X(std::int32_t, axclsimReport, (char* buffer, std::uint64_t size))

// axcl::fn::axclrtMalloc is the type of a pointer to axclrtMalloc, and so on.
namespace axcl::fn {
#define AXCL_POINTER_TYPE(result, name, arguments) using name = result(*) arguments;
AXCL_FUNCTIONS(AXCL_POINTER_TYPE)
AXCL_OPTIONAL_FUNCTIONS(AXCL_POINTER_TYPE)
AXCL_SIMULATOR_FUNCTIONS(AXCL_POINTER_TYPE)
#undef AXCL_POINTER_TYPE
}  // namespace axcl::fn
