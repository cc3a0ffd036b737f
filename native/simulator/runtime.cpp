#include "runtime.hpp"

#include "log.hpp"

namespace sim {
namespace {

thread_local std::weak_ptr<DeviceContext> current_context;

}  // namespace

Runtime& Runtime::get() {
    static Runtime& runtime = *new Runtime;
    return runtime;
}

axcl::Error Runtime::init() {
    Settings settings;
    std::string error;
    if (!read_settings(settings, error)) {
        log_error(error);
        return axcl::make_error(axcl::Sub::config, axcl::id::kIllegalParam);
    }
    const KernelTable* kernels = find_kernels(settings.isa);
    if (kernels == nullptr) {
        log_error("ENGINESET_SIM_ISA: \"" + settings.isa + "\" (expected avx512, avx2, neon or generic, and one that this CPU has)");
        return axcl::make_error(axcl::Sub::config, axcl::id::kIllegalParam);
    }
    if (settings.cards == 0) return axcl::kInitNoCard;
    const std::scoped_lock lock(npu_, mutex_);
    if (initialised_) return axcl::kSuccess;
    executor_ = std::make_unique<Executor>(*kernels, settings.threads);
    isa_ = kernels->name;
    threads_ = executor_->threads();
    settings_ = settings;
    wedged_ = settings.wedged;
    loads_ = 0;
    initialised_ = true;
    return axcl::kSuccess;
}

// Everything that lives on the card, or that only the card gives meaning to.
void Runtime::drop_card() {
    for (const auto& [handle, stream] : streams.take_all()) stream->finish(true);
    events.take_all();
    bindings.take_all();
    descriptions.take_all();
    contexts.take_all();
    const std::lock_guard lock(mutex_);
    for (const auto& [id, model] : models_) memory.unreserve(model.engine->file_size);
    models_.clear();
    memory.clear();
    default_context_.reset();
    device_references_ = 0;
    vnpu_kind_.reset();
    listed_ = false;
}

void Runtime::finalize() {
    drop_card();
    const std::scoped_lock lock(npu_, mutex_);
    executor_.reset();
    initialised_ = false;
    set_log_level(kDefaultLogLevel);
}

std::size_t Runtime::cards() const {
    const std::lock_guard lock(mutex_);
    return initialised_ ? 1 : 0;
}

bool Runtime::list_cards() {
    const std::lock_guard lock(mutex_);
    return listed_ = initialised_;
}

bool Runtime::is_connected(std::int32_t device) const {
    const std::lock_guard lock(mutex_);
    return listed_ && device == kCard;
}

axcl::Error Runtime::set_device(std::int32_t device) {
    std::shared_ptr<DeviceContext> context;
    {
        const std::lock_guard lock(mutex_);
        if (!listed_ || device != kCard) return axcl::kDeviceInvalidId;
        device_references_ += 1;
        if (default_context_ == nullptr) default_context_ = std::make_shared<DeviceContext>(DeviceContext{true});
        context = default_context_;
    }
    if (contexts.find(context.get()) == nullptr) contexts.add(context);
    bind(context);
    return axcl::kSuccess;
}

axcl::Error Runtime::reset_device(std::int32_t device) {
    std::shared_ptr<DeviceContext> last;
    {
        const std::lock_guard lock(mutex_);
        if (!listed_ || device != kCard) return axcl::kDeviceInvalidId;
        if (device_references_ == 0) return axcl::kDeviceNotActive;
        device_references_ -= 1;
        if (device_references_ == 0) last.swap(default_context_);
    }
    if (last != nullptr) contexts.remove(last.get());
    return axcl::kSuccess;
}

axcl::Error Runtime::reboot(std::int32_t device) {
    if (!is_connected(device)) return axcl::kDeviceReboot;
    drop_card();
    const std::lock_guard lock(mutex_);
    wedged_ = false;
    return axcl::kSuccess;
}

std::shared_ptr<DeviceContext> Runtime::default_context() const {
    const std::lock_guard lock(mutex_);
    return default_context_;
}

std::shared_ptr<DeviceContext> Runtime::current() const {
    const auto context = current_context.lock();
    return context == nullptr ? nullptr : contexts.find(context.get());
}

bool Runtime::is_bound() const { return current() != nullptr; }

void Runtime::bind(const std::shared_ptr<DeviceContext>& context) { current_context = context; }

std::string Runtime::report() const {
    const std::lock_guard lock(mutex_);
    return counters.json(isa_, threads_, memory.use());
}

}  // namespace sim
