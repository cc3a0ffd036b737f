#include <chrono>
#include <cstring>

#include "binding_check.hpp"
#include "fault.hpp"
#include "log.hpp"
#include "runtime.hpp"

namespace sim {
namespace {

void poison(const std::vector<std::optional<Span>>& outputs) {
    for (const auto& span : outputs) {
        if (span) std::memset(span->data(), 0xFF, span->size);
    }
}

template <class Pointer>
std::vector<Pointer> pointers(const std::vector<std::optional<Span>>& spans) {
    std::vector<Pointer> out;
    for (const auto& span : spans) out.push_back(span->data());
    return out;
}

}  // namespace

axcl::Error Runtime::engine_init(axcl::VnpuKind kind) {
    if (kind < axcl::VnpuKind::disable || kind > axcl::VnpuKind::little_big) return axcl::kEngineIllegal;
    const std::lock_guard lock(mutex_);
    vnpu_kind_ = kind;
    return axcl::kSuccess;
}

void Runtime::engine_finalize() {
    const std::lock_guard lock(mutex_);
    vnpu_kind_.reset();
}

std::optional<axcl::VnpuKind> Runtime::vnpu_kind() const {
    const std::lock_guard lock(mutex_);
    return vnpu_kind_;
}

bool Runtime::load_must_fail() {
    const std::lock_guard lock(mutex_);
    loads_ += 1;
    return settings_.load_fault != 0 && loads_ % settings_.load_fault == 0;
}

// What its executions will need is taken now: a call must not fail for want of memory.
void Runtime::reserve(const Engine& engine) {
    const std::lock_guard npu(npu_);
    if (executor_ == nullptr) return;
    for (const Group& group : engine.groups) executor_->reserve(group);
}

axcl::Error Runtime::keep(const std::shared_ptr<const Engine>& engine, axcl::ModelId& model) {
    // While it loads, a card holds the file and the engine made of it.
    if (!memory.reserve(2 * engine->file_size)) return axcl::kEngineNoMemory;
    memory.unreserve(engine->file_size);
    const std::lock_guard lock(mutex_);
    model = next_id_++;
    models_.emplace(model, Model{engine, {}});
    return axcl::kSuccess;
}

axcl::Error Runtime::load(const std::string& name, Bytes file, axcl::ModelId& model) {
    if (!vnpu_kind()) {
        log_error(name + ": loaded before axclrtEngineInit");
        return axcl::kEngineExecute;
    }
    if (load_must_fail()) {
        log_error(name + ": transient load failure (injected)");
        return axcl::kEngineExecute;
    }
    try {
        const auto engine = std::make_shared<const Engine>(load_engine(file));
        reserve(*engine);
        return keep(engine, model);
    } catch (const EngineFault& fault) {
        log_error(name + ": " + fault.what());
        return axcl::kEngineDecode;
    } catch (const std::bad_alloc&) {
        log_error(name + ": the host has no memory for it");
        return axcl::kEngineNoMemory;
    }
}

axcl::Error Runtime::unload(axcl::ModelId model) {
    const std::lock_guard lock(mutex_);
    const auto found = models_.find(model);
    if (found == models_.end()) return axcl::kEngineIllegal;
    memory.unreserve(found->second.engine->file_size);
    models_.erase(found);
    return axcl::kSuccess;
}

std::shared_ptr<const Engine> Runtime::engine(axcl::ModelId model) const {
    const std::lock_guard lock(mutex_);
    const auto found = models_.find(model);
    return found == models_.end() ? nullptr : found->second.engine;
}

axcl::Error Runtime::create_engine_context(axcl::ModelId model, axcl::EngineContextId& context) {
    const std::lock_guard lock(mutex_);
    const auto found = models_.find(model);
    if (found == models_.end()) return axcl::kEngineIllegal;
    context = next_id_++;
    found->second.contexts.insert(context);
    return axcl::kSuccess;
}

bool Runtime::has_engine_context(axcl::ModelId model, axcl::EngineContextId context) const {
    const std::lock_guard lock(mutex_);
    const auto found = models_.find(model);
    return found != models_.end() && found->second.contexts.contains(context);
}

bool Runtime::set_affinity(axcl::ModelId model, axcl::EngineSet set) {
    const std::lock_guard lock(mutex_);
    const auto found = models_.find(model);
    if (found == models_.end()) return false;
    found->second.affinity = set;
    return true;
}

std::optional<axcl::EngineSet> Runtime::affinity(axcl::ModelId model) const {
    const std::lock_guard lock(mutex_);
    const auto found = models_.find(model);
    if (found == models_.end()) return std::nullopt;
    return found->second.affinity;
}

axcl::Error Runtime::execute(const Engine& engine, std::uint32_t group_index, const Bindings& bound, bool reused_io) {
    const Group& group = engine.groups[group_index];
    CheckedBindings checked = check_bindings(group, bound, memory);
    if (reused_io) checked.breaches.push_back(Breach::io_two_groups);
    const std::lock_guard npu(npu_);
    bool wedged = false;
    {
        const std::lock_guard lock(mutex_);
        wedged = wedged_;
    }
    if (checked.foreign || wedged || executor_ == nullptr) {
        log_error(checked.foreign ? "execute: a bound pointer is not allocated by device " + std::to_string(kCard)
                                  : std::string("execute: the card is wedged"));
        return axcl::kEngineExecute;
    }
    const auto start = std::chrono::steady_clock::now();
    if (checked.breaches.empty()) {
        const auto beyond = executor_->run(group, pointers<const std::byte*>(checked.inputs), pointers<std::byte*>(checked.outputs));
        counters.count(Breach::position_beyond_table, beyond);
    } else {
        for (const Breach breach : checked.breaches) counters.count(breach);
        poison(checked.outputs);
    }
    const std::chrono::duration<double, std::micro> measured = std::chrono::steady_clock::now() - start;
    counters.executed(modelled_microseconds(group), measured.count());
    return axcl::kSuccess;
}

}  // namespace sim
