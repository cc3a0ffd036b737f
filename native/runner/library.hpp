// libaxcl_rt.so, opened at run time: a table of the functions a runner needs.
#pragma once

#include <string>

#include "axcl_abi.hpp"

#define RUNNER_REQUIRED(X)                \
    X(axclInit)                           \
    X(axclFinalize)                       \
    X(axclSetLogLevel)                    \
    X(axclrtGetDeviceList)                \
    X(axclrtSetDevice)                    \
    X(axclrtResetDevice)                  \
    X(axclrtCreateContext)                \
    X(axclrtDestroyContext)               \
    X(axclrtSetCurrentContext)            \
    X(axclrtMalloc)                       \
    X(axclrtFree)                         \
    X(axclrtMallocHost)                   \
    X(axclrtFreeHost)                     \
    X(axclrtMemset)                       \
    X(axclrtMemcpy)                       \
    X(axclrtEngineInit)                   \
    X(axclrtEngineFinalize)               \
    X(axclrtEngineGetVNpuKind)            \
    X(axclrtEngineLoadFromFile)           \
    X(axclrtEngineUnload)                 \
    X(axclrtEngineGetIOInfo)              \
    X(axclrtEngineDestroyIOInfo)          \
    X(axclrtEngineGetShapeGroupsCount)    \
    X(axclrtEngineGetNumInputs)           \
    X(axclrtEngineGetNumOutputs)          \
    X(axclrtEngineGetInputSizeByIndex)    \
    X(axclrtEngineGetOutputSizeByIndex)   \
    X(axclrtEngineGetInputIndexByName)    \
    X(axclrtEngineGetOutputIndexByName)   \
    X(axclrtEngineGetInputNameByIndex)    \
    X(axclrtEngineGetOutputNameByIndex)   \
    X(axclrtEngineGetInputDataType)       \
    X(axclrtEngineGetOutputDataType)      \
    X(axclrtEngineCreateIO)               \
    X(axclrtEngineDestroyIO)              \
    X(axclrtEngineSetInputBufferByIndex)  \
    X(axclrtEngineSetOutputBufferByIndex) \
    X(axclrtEngineCreateContext)          \
    X(axclrtEngineExecute)

#define RUNNER_OPTIONAL(X) X(axclsimReport)

namespace runner {

// Never unloaded: the real library's threads may outlive axclFinalize.
struct Library {
    // `path` empty: libaxcl_rt.so by the loader's own search. Throws Fault naming the first missing symbol.
    explicit Library(const std::string& path);
    Library(const Library&) = delete;
    Library& operator=(const Library&) = delete;

    std::string path;
#define RUNNER_MEMBER(name) axcl::fn::name name = nullptr;
    RUNNER_REQUIRED(RUNNER_MEMBER)
    RUNNER_OPTIONAL(RUNNER_MEMBER)
#undef RUNNER_MEMBER
};

// "0x80300507 (memory: no memory)"
std::string describe(axcl::Error code);

// Throws DeviceFault "call: code (meaning): about" unless `code` is success; teardown is on the clock from there.
void check(axcl::Error code, const char* call, const std::string& about = {});

}  // namespace runner
