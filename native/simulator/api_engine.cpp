#include <cstdio>
#include <string>

#include "api.hpp"
#include "log.hpp"
#include "mapped_file.hpp"

using sim::Call;
using sim::counted;
using sim::Runtime;

namespace {

constexpr axcl::Error kNoContextForLoad = axcl::kMemoryExecute;  // measured: not the usual "no bound context"

axcl::Error load_file(Runtime& runtime, const char* path, axcl::ModelId& model) {
    const auto file = sim::MappedFile::open(path);
    if (!file) return axcl::kEngineIllegal;
    if (!runtime.is_bound()) return kNoContextForLoad;
    return runtime.load(path, file->bytes(), model);
}

axcl::Error load_memory(Runtime& runtime, const void* device, std::uint64_t size, axcl::ModelId& model) {
    if (device == nullptr || size == 0) return axcl::kEngineIllegal;
    if (!runtime.is_bound()) return axcl::kNoBoundContext;
    const auto span = runtime.memory.find(device, size);
    if (!span) return axcl::kEngineExecute;
    char name[48];
    std::snprintf(name, sizeof name, "engine at %p", device);
    return runtime.load(name, sim::Bytes(span->data(), span->size), model);
}

// Queries of an engine that is not loaded load it for as long as they take, as the real library does.
template <class Query>
axcl::Error with_model(Runtime& runtime, axcl::Error loaded, axcl::ModelId model, Query query) {
    if (loaded != axcl::kSuccess) return loaded;
    const axcl::Error error = query(model);
    runtime.unload(model);
    return error;
}

axcl::Error usage(const Runtime& runtime, axcl::ModelId model, std::int64_t* sys, std::int64_t* cmm) {
    const auto engine = runtime.engine(model);
    if (engine == nullptr) return axcl::kEngineIllegal;
    *sys = 0;
    *cmm = static_cast<std::int64_t>(engine->file_size);
    return axcl::kSuccess;
}

axcl::Error model_type(const Runtime& runtime, axcl::ModelId model, axcl::ModelKind* kind) {
    if (runtime.engine(model) == nullptr) return axcl::kEngineIllegal;
    *kind = axcl::ModelKind::three_core;
    return axcl::kSuccess;
}

}  // namespace

axcl::Error axclrtEngineInit(axcl::VnpuKind kind) noexcept try {
    auto& runtime = counted(Call::axclrtEngineInit);
    return runtime.is_bound() ? runtime.engine_init(kind) : axcl::kNoBoundContext;
} SIM_BOUNDARY(axclrtEngineInit)

axcl::Error axclrtEngineFinalize() noexcept try {
    auto& runtime = counted(Call::axclrtEngineFinalize);
    if (!runtime.is_bound()) return axcl::kNoBoundContext;
    runtime.engine_finalize();
    return axcl::kSuccess;
} SIM_BOUNDARY(axclrtEngineFinalize)

axcl::Error axclrtEngineGetVNpuKind(axcl::VnpuKind* kind) noexcept try {
    const auto& runtime = counted(Call::axclrtEngineGetVNpuKind);
    if (kind == nullptr) return axcl::kEngineNull;
    if (!runtime.is_bound()) return axcl::kNoBoundContext;
    const auto found = runtime.vnpu_kind();
    if (!found) return axcl::kEngineExecute;
    *kind = *found;
    return axcl::kSuccess;
} SIM_BOUNDARY(axclrtEngineGetVNpuKind)

axcl::Error axclrtEngineLoadFromFile(const char* path, axcl::ModelId* model) noexcept try {
    auto& runtime = counted(Call::axclrtEngineLoadFromFile);
    if (path == nullptr || model == nullptr) return axcl::kEngineNull;
    return load_file(runtime, path, *model);
} SIM_BOUNDARY(axclrtEngineLoadFromFile)

axcl::Error axclrtEngineLoadFromMem(const void* device, std::uint64_t size, axcl::ModelId* model) noexcept try {
    auto& runtime = counted(Call::axclrtEngineLoadFromMem);
    if (model == nullptr) return axcl::kEngineNull;
    return load_memory(runtime, device, size, *model);
} SIM_BOUNDARY(axclrtEngineLoadFromMem)

axcl::Error axclrtEngineUnload(axcl::ModelId model) noexcept try {
    auto& runtime = counted(Call::axclrtEngineUnload);
    if (model == 0) return axcl::kEngineIllegal;
    return runtime.is_bound() ? runtime.unload(model) : axcl::kNoBoundContext;
} SIM_BOUNDARY(axclrtEngineUnload)

const char* axclrtEngineGetModelCompilerVersion(axcl::ModelId model) noexcept try {
    const auto engine = counted(Call::axclrtEngineGetModelCompilerVersion).engine(model);
    return engine == nullptr ? nullptr : engine->compiler_version.c_str();
} SIM_BOUNDARY(axclrtEngineGetModelCompilerVersion)

axcl::Error axclrtEngineSetAffinity(axcl::ModelId model, axcl::EngineSet set) noexcept try {
    auto& runtime = counted(Call::axclrtEngineSetAffinity);
    if (model == 0 || set == 0) return axcl::kEngineIllegal;
    if (!runtime.is_bound()) return axcl::kNoBoundContext;
    return runtime.set_affinity(model, set) ? axcl::kSuccess : axcl::kEngineIllegal;
} SIM_BOUNDARY(axclrtEngineSetAffinity)

axcl::Error axclrtEngineGetAffinity(axcl::ModelId model, axcl::EngineSet* set) noexcept try {
    const auto& runtime = counted(Call::axclrtEngineGetAffinity);
    if (set == nullptr) return axcl::kEngineNull;
    if (!runtime.is_bound()) return axcl::kNoBoundContext;
    const auto found = runtime.affinity(model);
    if (!found) return axcl::kEngineIllegal;
    *set = *found;
    return axcl::kSuccess;
} SIM_BOUNDARY(axclrtEngineGetAffinity)

axcl::Error axclrtEngineSetContextAffinity(axcl::ModelId, axcl::EngineContextId, axcl::EngineSet) noexcept try {
    counted(Call::axclrtEngineSetContextAffinity);
    return axcl::kEngineUnsupported;
} SIM_BOUNDARY(axclrtEngineSetContextAffinity)

axcl::Error axclrtEngineGetContextAffinity(axcl::ModelId, axcl::EngineContextId, axcl::EngineSet*) noexcept try {
    counted(Call::axclrtEngineGetContextAffinity);
    return axcl::kEngineUnsupported;
} SIM_BOUNDARY(axclrtEngineGetContextAffinity)

axcl::Error axclrtEngineGetUsage(const char* path, std::int64_t* sys, std::int64_t* cmm) noexcept try {
    auto& runtime = counted(Call::axclrtEngineGetUsage);
    if (path == nullptr || sys == nullptr || cmm == nullptr) return axcl::kEngineNull;
    axcl::ModelId model = 0;
    const axcl::Error loaded = load_file(runtime, path, model);
    return with_model(runtime, loaded, model, [&](axcl::ModelId id) { return usage(runtime, id, sys, cmm); });
} SIM_BOUNDARY(axclrtEngineGetUsage)

axcl::Error axclrtEngineGetUsageFromMem(const void* device, std::uint64_t size, std::int64_t* sys, std::int64_t* cmm) noexcept try {
    auto& runtime = counted(Call::axclrtEngineGetUsageFromMem);
    if (sys == nullptr || cmm == nullptr) return axcl::kEngineNull;
    axcl::ModelId model = 0;
    const axcl::Error loaded = load_memory(runtime, device, size, model);
    return with_model(runtime, loaded, model, [&](axcl::ModelId id) { return usage(runtime, id, sys, cmm); });
} SIM_BOUNDARY(axclrtEngineGetUsageFromMem)

axcl::Error axclrtEngineGetUsageFromModelId(axcl::ModelId model, std::int64_t* sys, std::int64_t* cmm) noexcept try {
    const auto& runtime = counted(Call::axclrtEngineGetUsageFromModelId);
    if (sys == nullptr || cmm == nullptr) return axcl::kEngineNull;
    return runtime.is_bound() ? usage(runtime, model, sys, cmm) : axcl::kNoBoundContext;
} SIM_BOUNDARY(axclrtEngineGetUsageFromModelId)

axcl::Error axclrtEngineGetModelType(const char* path, axcl::ModelKind* kind) noexcept try {
    auto& runtime = counted(Call::axclrtEngineGetModelType);
    if (path == nullptr || kind == nullptr) return axcl::kEngineNull;
    axcl::ModelId model = 0;
    const axcl::Error loaded = load_file(runtime, path, model);
    return with_model(runtime, loaded, model, [&](axcl::ModelId id) { return model_type(runtime, id, kind); });
} SIM_BOUNDARY(axclrtEngineGetModelType)

axcl::Error axclrtEngineGetModelTypeFromMem(const void* device, std::uint64_t size, axcl::ModelKind* kind) noexcept try {
    auto& runtime = counted(Call::axclrtEngineGetModelTypeFromMem);
    if (kind == nullptr) return axcl::kEngineNull;
    axcl::ModelId model = 0;
    const axcl::Error loaded = load_memory(runtime, device, size, model);
    return with_model(runtime, loaded, model, [&](axcl::ModelId id) { return model_type(runtime, id, kind); });
} SIM_BOUNDARY(axclrtEngineGetModelTypeFromMem)

axcl::Error axclrtEngineGetModelTypeFromModelId(axcl::ModelId model, axcl::ModelKind* kind) noexcept try {
    const auto& runtime = counted(Call::axclrtEngineGetModelTypeFromModelId);
    if (kind == nullptr) return axcl::kEngineNull;
    return runtime.is_bound() ? model_type(runtime, model, kind) : axcl::kNoBoundContext;
} SIM_BOUNDARY(axclrtEngineGetModelTypeFromModelId)

axcl::Error axclrtEngineCreateContext(axcl::ModelId model, axcl::EngineContextId* context) noexcept try {
    auto& runtime = counted(Call::axclrtEngineCreateContext);
    if (context == nullptr) return axcl::kEngineNull;
    if (model == 0) return axcl::kEngineIllegal;
    return runtime.is_bound() ? runtime.create_engine_context(model, *context) : axcl::kNoBoundContext;
} SIM_BOUNDARY(axclrtEngineCreateContext)

namespace {

// Everything one execution needs, captured when it is asked for: later rebinding does not change it.
struct Execution {
    std::shared_ptr<const sim::Engine> engine;
    std::uint32_t group = 0;
    sim::Bindings bindings;
    bool reused_io = false;
};

axcl::Error prepare(Runtime& runtime, axcl::ModelId model, axcl::EngineContextId context, std::uint32_t group, axcl::Io io,
                    Execution& out) {
    if (io == nullptr) return axcl::kEngineNull;
    if (model == 0 || context == 0) return axcl::kEngineIllegal;
    if (!runtime.is_bound()) return axcl::kNoBoundContext;
    const auto binding = runtime.bindings.find(io);
    out.engine = runtime.engine(model);
    if (binding == nullptr || out.engine == nullptr || !runtime.has_engine_context(model, context)) return axcl::kEngineIllegal;
    if (group >= out.engine->groups.size()) return axcl::kEngineIndex;
    out.group = group;
    out.bindings = binding->snapshot();
    out.reused_io = binding->used_with_other_group(model, group);
    const sim::Group& shape = out.engine->groups[group];
    const bool same = out.bindings.inputs.size() == shape.inputs.size() && out.bindings.outputs.size() == shape.outputs.size();
    return same ? axcl::kSuccess : axcl::kEngineIllegal;
}

}  // namespace

axcl::Error axclrtEngineExecute(axcl::ModelId model, axcl::EngineContextId context, std::uint32_t group, axcl::Io io) noexcept try {
    auto& runtime = counted(Call::axclrtEngineExecute);
    Execution execution;
    const axcl::Error error = prepare(runtime, model, context, group, io, execution);
    if (error != axcl::kSuccess) return error;
    return runtime.execute(*execution.engine, execution.group, execution.bindings, execution.reused_io);
} SIM_BOUNDARY(axclrtEngineExecute)

axcl::Error axclrtEngineExecuteAsync(axcl::ModelId model, axcl::EngineContextId context, std::uint32_t group, axcl::Io io,
                                     axcl::Stream stream) noexcept try {
    auto& runtime = counted(Call::axclrtEngineExecuteAsync);
    if (stream == nullptr) return axcl::kStreamNull;
    Execution execution;
    const axcl::Error error = prepare(runtime, model, context, group, io, execution);
    if (error != axcl::kSuccess) return error;
    const auto queue = runtime.streams.find(stream);
    if (queue == nullptr) return axcl::make_error(axcl::Sub::stream, axcl::id::kIllegalParam);
    queue->submit([&runtime, execution = std::move(execution)] {
        return runtime.execute(*execution.engine, execution.group, execution.bindings, execution.reused_io);
    });
    return axcl::kSuccess;
} SIM_BOUNDARY(axclrtEngineExecuteAsync)
