#include "resources.hpp"

#include <string>

#include "faults.hpp"
#include "signals.hpp"

namespace runner {
namespace {

// A file, argument or memory that is wrong now is wrong a second later too.
bool lasting(axcl::Error code) {
    const std::uint32_t id = static_cast<std::uint32_t>(code) & 0xFFU;
    using namespace axcl::id;
    return id == kNullPointer || id == kIllegalParam || id == kUnsupported || id == kNoMemory || id == kDecode;
}

}  // namespace

axcl::ModelId Resources::load(const std::filesystem::path& file) {
    axcl::ModelId model = 0;
    for (int attempt = 1;; ++attempt) {
        signals::check();
        const axcl::Error code = library_->axclrtEngineLoadFromFile(file.c_str(), &model);
        if (code == axcl::kSuccess) break;
        const std::string about = file.string() + " (attempt " + std::to_string(attempt) + ")";
        if (lasting(code) || attempt >= policy_.attempts) check(code, "axclrtEngineLoadFromFile", about);
        signals::pause(attempt * policy_.pause_milliseconds);
    }
    models_.emplace_back(*library_, model);
    return model;
}

axcl::IoInfo Resources::info(axcl::ModelId model) {
    axcl::IoInfo info = nullptr;
    check(library_->axclrtEngineGetIOInfo(model, &info), "axclrtEngineGetIOInfo");
    infos_.emplace_back(*library_, info);
    return info;
}

axcl::Io Resources::io(axcl::IoInfo info) {
    axcl::Io io = nullptr;
    check(library_->axclrtEngineCreateIO(info, &io), "axclrtEngineCreateIO");
    ios_.emplace_back(*library_, io);
    return io;
}

void* Resources::device_memory(std::uint64_t bytes) {
    void* memory = nullptr;
    const std::string about = std::to_string(bytes) + " bytes";
    check(library_->axclrtMalloc(&memory, bytes, axcl::MallocPolicy::huge_first), "axclrtMalloc", about);
    device_.emplace_back(*library_, memory);
    return memory;
}

void* Resources::host_memory(std::uint64_t bytes) {
    void* memory = nullptr;
    check(library_->axclrtMallocHost(&memory, bytes), "axclrtMallocHost", std::to_string(bytes) + " bytes");
    host_.emplace_back(*library_, memory);
    return memory;
}

}  // namespace runner
