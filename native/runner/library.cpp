#include "library.hpp"

#include <dlfcn.h>

#include <array>
#include <cstdio>

#include "crash.hpp"
#include "faults.hpp"

namespace runner {
namespace {

constexpr const char* kDefaultName = "libaxcl_rt.so";

void* open(const std::string& name) {
    void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) throw Fault("runtime library cannot be loaded: " + std::string(dlerror()));
    return handle;
}

template <typename Function>
void resolve(void* handle, const char* symbol, Function& function) {
    function = reinterpret_cast<Function>(dlsym(handle, symbol));
}

const char* sub_name(std::uint32_t sub) {
    constexpr std::array names{"?",      "device", "context", "stream",  "task", "memory", "config",
                               "engine", "syslog", "sysctrl", "latency", "p2p",  "usrwork"};
    return sub < names.size() ? names[sub] : names[0];
}

const char* id_name(std::uint32_t id) {
    constexpr std::array names{
        "?",         "failed", "null pointer", "illegal parameter",   "unsupported", "timeout",       "busy",
        "no memory", "encode", "decode",       "unexpected response", "open failed", "execute failed"};
    return id < names.size() ? names[id] : "see the runtime's documentation";
}

}  // namespace

Library::Library(const std::string& requested) : path(requested.empty() ? kDefaultName : requested) {
    void* handle = open(path);
#define RUNNER_RESOLVE(name)      \
    resolve(handle, #name, name); \
    if (name == nullptr) throw Fault(path + ": required symbol " #name " is missing");
    RUNNER_REQUIRED(RUNNER_RESOLVE)
#undef RUNNER_RESOLVE
#define RUNNER_RESOLVE(name) resolve(handle, #name, name);
    RUNNER_OPTIONAL(RUNNER_RESOLVE)
#undef RUNNER_RESOLVE
}

std::string describe(axcl::Error code) {
    const auto bits = static_cast<std::uint32_t>(code);
    std::array<char, 16> hex{};
    std::snprintf(hex.data(), hex.size(), "0x%08X", bits);
    return std::string(hex.data()) + " (" + sub_name(bits >> 8U & 0xFFU) + ": " + id_name(bits & 0xFFU) + ")";
}

void check(axcl::Error code, const char* call, const std::string& about) {
    if (code == axcl::kSuccess) return;
    const std::string line = std::string(call) + ": " + describe(code) + (about.empty() ? "" : ": " + about);
    limit_teardown(one_line(line));
    throw DeviceFault(line);
}

}  // namespace runner
