// The process's hold on one device: initialised in the driver's order, given back in the reverse.
#pragma once

#include <cstdint>
#include <optional>

#include "library.hpp"
#include "owned.hpp"

namespace runner {

struct DeviceChoice {
    std::optional<std::int32_t> id;            // none: the first of the list
    int connect_timeout_milliseconds = 15000;  // a card that has just booted is not listed for some seconds
};

class Session {
  public:
    // Throws DeviceFault for a failing call, Fault for a device that is not there.
    Session(const Library& library, const DeviceChoice& choice);

  private:
    struct Process {
        explicit Process(const Library& library);
        ~Process();
        Process(const Process&) = delete;
        Process& operator=(const Process&) = delete;
        const Library& library;
    };
    struct EngineService {
        explicit EngineService(const Library& library);
        ~EngineService();
        EngineService(const EngineService&) = delete;
        EngineService& operator=(const EngineService&) = delete;
        const Library& library;
        bool ours;  // false: somebody had initialised it before
    };

    Process process_;
    Owned<std::int32_t, &Library::axclrtResetDevice> device_;
    Owned<axcl::Context, &Library::axclrtDestroyContext> context_;
    EngineService engines_;
};

}  // namespace runner
