// Everything the card holds for one set.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "library.hpp"
#include "owned.hpp"

namespace runner {

// Loading fails now and then for no lasting reason: pauses of 1, 2, 3 … times `pause_milliseconds` between attempts.
struct LoadPolicy {
    int attempts = 6;
    int pause_milliseconds = 700;
};

// Released from the last member to the first, as the driver wants it: IO, IO info, memory, engines.
class Resources {
  public:
    Resources(const Library& library, const LoadPolicy& policy) : library_(&library), policy_(policy) {}

    const Library& library() const { return *library_; }

    // All throw DeviceFault.
    axcl::ModelId load(const std::filesystem::path& file);
    axcl::IoInfo info(axcl::ModelId model);
    axcl::Io io(axcl::IoInfo info);
    void* device_memory(std::uint64_t bytes);
    void* host_memory(std::uint64_t bytes);

  private:
    const Library* library_;
    LoadPolicy policy_;
    std::vector<Owned<axcl::ModelId, &Library::axclrtEngineUnload>> models_;
    std::vector<Owned<void*, &Library::axclrtFreeHost>> host_;
    std::vector<Owned<void*, &Library::axclrtFree>> device_;
    std::vector<Owned<axcl::IoInfo, &Library::axclrtEngineDestroyIOInfo>> infos_;
    std::vector<Owned<axcl::Io, &Library::axclrtEngineDestroyIO>> ios_;
};

}  // namespace runner
