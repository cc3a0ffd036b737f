#include "api.hpp"

using sim::Call;
using sim::counted;
using sim::Runtime;

namespace {

constexpr axcl::Error kStreamIllegal = axcl::make_error(axcl::Sub::stream, axcl::id::kIllegalParam);

axcl::Error destroy(Runtime& runtime, axcl::Stream stream, bool drop) {
    if (stream == nullptr) return axcl::kStreamNull;
    const auto found = runtime.streams.remove(stream);
    if (found == nullptr) return kStreamIllegal;
    found->finish(drop);
    return axcl::kSuccess;
}

axcl::Error synchronize(Runtime& runtime, axcl::Stream stream, std::int32_t milliseconds) {
    if (stream == nullptr) return axcl::kStreamNull;
    const auto found = runtime.streams.find(stream);
    if (found == nullptr) return kStreamIllegal;
    return found->wait(milliseconds).value_or(axcl::make_error(axcl::Sub::stream, 0x83));
}

axcl::Error wait_event(Runtime& runtime, axcl::Stream stream, axcl::Event event, std::int32_t milliseconds) {
    if (stream == nullptr || event == nullptr) return axcl::kStreamNull;
    const auto queue = runtime.streams.find(stream);
    const auto point = runtime.events.find(event);
    if (queue == nullptr || point == nullptr) return kStreamIllegal;
    point->wait(*queue, milliseconds);
    return axcl::kSuccess;
}

}  // namespace

axcl::Error axclrtCreateStream(axcl::Stream* stream) noexcept try {
    auto& runtime = counted(Call::axclrtCreateStream);
    if (stream == nullptr) return axcl::kStreamNull;
    if (!runtime.is_bound()) return axcl::kNoBoundContext;
    *stream = runtime.streams.add(std::make_shared<sim::StreamQueue>());
    return axcl::kSuccess;
} SIM_BOUNDARY(axclrtCreateStream)

axcl::Error axclrtDestroyStream(axcl::Stream stream) noexcept try {
    return destroy(counted(Call::axclrtDestroyStream), stream, false);
} SIM_BOUNDARY(axclrtDestroyStream)

axcl::Error axclrtDestroyStreamForce(axcl::Stream stream) noexcept try {
    return destroy(counted(Call::axclrtDestroyStreamForce), stream, true);
} SIM_BOUNDARY(axclrtDestroyStreamForce)

axcl::Error axclrtSynchronizeStream(axcl::Stream stream) noexcept try {
    return synchronize(counted(Call::axclrtSynchronizeStream), stream, axcl::kInfiniteTimeout);
} SIM_BOUNDARY(axclrtSynchronizeStream)

axcl::Error axclrtSynchronizeStreamWithTimeout(axcl::Stream stream, std::int32_t milliseconds) noexcept try {
    return synchronize(counted(Call::axclrtSynchronizeStreamWithTimeout), stream, milliseconds);
} SIM_BOUNDARY(axclrtSynchronizeStreamWithTimeout)

axcl::Error axclrtCreateEvent(axcl::Event* event) noexcept try {
    auto& runtime = counted(Call::axclrtCreateEvent);
    if (event == nullptr) return axcl::kStreamNull;
    if (!runtime.is_bound()) return axcl::kDeviceNoneActive;
    *event = runtime.events.add(std::make_shared<sim::EventPoint>());
    return axcl::kSuccess;
} SIM_BOUNDARY(axclrtCreateEvent)

axcl::Error axclrtDestroyEvent(axcl::Event event) noexcept try {
    auto& runtime = counted(Call::axclrtDestroyEvent);
    if (event == nullptr) return axcl::kStreamNull;
    return runtime.events.remove(event) == nullptr ? kStreamIllegal : axcl::kSuccess;
} SIM_BOUNDARY(axclrtDestroyEvent)

axcl::Error axclrtRecordEvent(axcl::Event event, axcl::Stream stream) noexcept try {
    auto& runtime = counted(Call::axclrtRecordEvent);
    if (event == nullptr || stream == nullptr) return axcl::kStreamNull;
    const auto point = runtime.events.find(event);
    const auto queue = runtime.streams.find(stream);
    if (point == nullptr || queue == nullptr) return kStreamIllegal;
    point->record(*queue);
    return axcl::kSuccess;
} SIM_BOUNDARY(axclrtRecordEvent)

axcl::Error axclrtStreamWaitEvent(axcl::Stream stream, axcl::Event event) noexcept try {
    return wait_event(counted(Call::axclrtStreamWaitEvent), stream, event, axcl::kInfiniteTimeout);
} SIM_BOUNDARY(axclrtStreamWaitEvent)

axcl::Error axclrtStreamWaitEventWithTimeout(axcl::Stream stream, axcl::Event event, std::int32_t milliseconds) noexcept try {
    return wait_event(counted(Call::axclrtStreamWaitEventWithTimeout), stream, event, milliseconds);
} SIM_BOUNDARY(axclrtStreamWaitEventWithTimeout)
