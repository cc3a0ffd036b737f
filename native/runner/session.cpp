#include "session.hpp"

#include <algorithm>
#include <string>

#include "faults.hpp"
#include "signals.hpp"

namespace runner {
namespace {

constexpr int kPollMilliseconds = 250;
constexpr std::int32_t kLogErrors = 4;  // at "info" the library logs every bind and every execute

// The list is also what activates devices: nothing else may come before it.
axcl::DeviceList list_devices(const Library& library, int timeout_milliseconds) {
    for (int waited = 0;; waited += kPollMilliseconds) {
        axcl::DeviceList list{};
        check(library.axclrtGetDeviceList(&list), "axclrtGetDeviceList");
        if (list.num > axcl::kMaxDevices) throw DeviceFault("axclrtGetDeviceList: counts " + std::to_string(list.num));
        if (list.num > 0) return list;
        if (waited >= timeout_milliseconds) throw Fault(library.path + ": no device is connected");
        signals::pause(std::min(kPollMilliseconds, timeout_milliseconds - waited));
    }
}

std::int32_t choose(const Library& library, const DeviceChoice& choice) {
    const axcl::DeviceList list = list_devices(library, choice.connect_timeout_milliseconds);
    if (!choice.id) return list.devices[0];
    std::string known;
    for (std::uint32_t i = 0; i < list.num; ++i) {
        if (list.devices[i] == *choice.id) return *choice.id;
        known.append(" ").append(std::to_string(list.devices[i]));
    }
    throw Fault("device " + std::to_string(*choice.id) + " is not connected, found:" + known);
}

std::int32_t set_device(const Library& library, const DeviceChoice& choice) {
    const std::int32_t id = choose(library, choice);
    check(library.axclrtSetDevice(id), "axclrtSetDevice", "device " + std::to_string(id));
    return id;
}

axcl::Context create_context(const Library& library, std::int32_t device) {
    axcl::Context context = nullptr;
    check(library.axclrtCreateContext(&context, device), "axclrtCreateContext");
    return context;
}

const Library& bound(const Library& library, axcl::Context context) {
    check(library.axclrtSetCurrentContext(context), "axclrtSetCurrentContext");
    return library;
}

bool init_engines(const Library& library) {
    const axcl::Error code = library.axclrtEngineInit(axcl::VnpuKind::disable);
    axcl::VnpuKind kind{};
    if (code != axcl::kSuccess && library.axclrtEngineGetVNpuKind(&kind) == axcl::kSuccess) return false;
    check(code, "axclrtEngineInit");
    return true;
}

}  // namespace

Session::Process::Process(const Library& lib) : library(lib) { check(library.axclInit(nullptr), "axclInit"); }

Session::Process::~Process() { library.axclFinalize(); }

Session::EngineService::EngineService(const Library& lib) : library(lib), ours(init_engines(lib)) {}

Session::EngineService::~EngineService() {
    if (ours) library.axclrtEngineFinalize();
}

Session::Session(const Library& library, const DeviceChoice& choice)
    : process_(library),
      device_(library, set_device(library, choice)),
      context_(library, create_context(library, device_.get())),
      engines_(bound(library, context_.get())) {
    check(library.axclSetLogLevel(kLogErrors), "axclSetLogLevel");
}

}  // namespace runner
