// The process's one card and everything that hangs on it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "axcl_abi.hpp"
#include "executor.hpp"
#include "handles.hpp"
#include "io.hpp"
#include "memory.hpp"
#include "report.hpp"
#include "settings.hpp"
#include "stream.hpp"

namespace sim {

// Ids derive from the PCI address and do not start at 0 [published: 3 and 129 were seen].
inline constexpr std::int32_t kCard = 129;

struct DeviceContext {
    bool is_default = false;
};

struct Model {
    std::shared_ptr<const Engine> engine;
    std::set<axcl::EngineContextId> contexts;
    axcl::EngineSet affinity = 0b111;  // all three cores
};

class Runtime {
public:
    // Never destroyed: a process that ends without axclFinalize must not hang in a destructor.
    static Runtime& get();

    axcl::Error init();
    void finalize();

    // Device and contexts. The current context is the calling thread's.
    bool list_cards();
    axcl::Error set_device(std::int32_t device);
    axcl::Error reset_device(std::int32_t device);
    axcl::Error reboot(std::int32_t device);
    bool is_connected(std::int32_t device) const;
    std::size_t cards() const;
    std::shared_ptr<DeviceContext> default_context() const;
    bool is_bound() const;
    std::shared_ptr<DeviceContext> current() const;
    void bind(const std::shared_ptr<DeviceContext>& context);

    // Engines.
    axcl::Error engine_init(axcl::VnpuKind kind);
    void engine_finalize();
    std::optional<axcl::VnpuKind> vnpu_kind() const;
    axcl::Error load(const std::string& name, Bytes file, axcl::ModelId& model);
    axcl::Error unload(axcl::ModelId model);
    std::shared_ptr<const Engine> engine(axcl::ModelId model) const;
    axcl::Error create_engine_context(axcl::ModelId model, axcl::EngineContextId& context);
    bool has_engine_context(axcl::ModelId model, axcl::EngineContextId context) const;
    bool set_affinity(axcl::ModelId model, axcl::EngineSet set);
    std::optional<axcl::EngineSet> affinity(axcl::ModelId model) const;
    axcl::Error execute(const Engine& engine, std::uint32_t group, const Bindings& bindings, bool reused_io);

    std::string report() const;

    DeviceMemory memory;
    Report counters;
    Handles<DeviceContext> contexts;
    Handles<StreamQueue> streams;
    Handles<EventPoint> events;
    Handles<IoDescription> descriptions;
    Handles<IoBinding> bindings;

private:
    bool load_must_fail();
    void drop_card();
    void reserve(const Engine& engine);
    axcl::Error keep(const std::shared_ptr<const Engine>& engine, axcl::ModelId& model);

    mutable std::mutex mutex_;  // everything below
    bool initialised_ = false, listed_ = false, wedged_ = false;
    Settings settings_;
    unsigned device_references_ = 0;
    std::shared_ptr<DeviceContext> default_context_;
    std::optional<axcl::VnpuKind> vnpu_kind_;
    std::map<axcl::ModelId, Model> models_;
    std::uint64_t next_id_ = 1, loads_ = 0;
    std::string isa_;
    std::size_t threads_ = 0;

    std::mutex npu_;  // one call at a time, as on the card
    std::unique_ptr<Executor> executor_;
};

}  // namespace sim
