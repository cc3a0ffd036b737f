#include <algorithm>

#include "api.hpp"

using sim::Call;
using sim::counted;
using sim::Runtime;
using sim::Side;

namespace {

// Errors of functions that return a count or a size come back in its type: a u32, or a sign-extended u64.
std::uint32_t as_count(axcl::Error error) { return static_cast<std::uint32_t>(error); }
std::uint64_t as_size(axcl::Error error) { return static_cast<std::uint64_t>(static_cast<std::int64_t>(error)); }

std::uint32_t slot_count(Runtime& runtime, axcl::IoInfo info, Side side) {
    const auto found = runtime.descriptions.find(info);
    return found == nullptr ? as_count(axcl::kEngineNull) : static_cast<std::uint32_t>(found->slots(side).size());
}

std::uint64_t slot_size(Runtime& runtime, axcl::IoInfo info, Side side, std::uint32_t group, std::uint32_t index) {
    const auto found = runtime.descriptions.find(info);
    if (found == nullptr) return as_size(axcl::kEngineNull);
    const sim::IoSlot* slot = found->find(side, group, index);
    return slot == nullptr ? as_size(axcl::kEngineIndex) : slot->size;
}

// The name lives as long as the description, which the caller keeps alive.
const char* slot_name(Runtime& runtime, axcl::IoInfo info, Side side, std::uint32_t index) {
    const auto found = runtime.descriptions.find(info);
    const sim::IoSlot* slot = found == nullptr ? nullptr : found->find(side, 0, index);
    return slot == nullptr ? nullptr : slot->name.c_str();
}

std::int32_t slot_index(Runtime& runtime, axcl::IoInfo info, Side side, const char* name) {
    const auto found = runtime.descriptions.find(info);
    if (found == nullptr || name == nullptr) return axcl::kEngineNull;
    const auto& slots = found->slots(side);
    const auto slot = std::ranges::find(slots, name, &sim::IoSlot::name);
    return slot == slots.end() ? axcl::kEngineIllegal : static_cast<std::int32_t>(slot - slots.begin());
}

template <class Value, class Get>
axcl::Error query(Runtime& runtime, axcl::IoInfo info, Side side, std::uint32_t group, std::uint32_t index, Value* out, Get get) {
    const auto found = runtime.descriptions.find(info);
    if (found == nullptr || out == nullptr) return axcl::kEngineNull;
    const sim::IoSlot* slot = found->find(side, group, index);
    if (slot == nullptr) return axcl::kEngineIndex;
    *out = get(*slot);
    return axcl::kSuccess;
}

axcl::IoDims slot_dims(const sim::IoSlot& slot) {
    axcl::IoDims dims{};
    dims.dim_count = static_cast<std::int32_t>(slot.dims.size());
    std::ranges::copy(slot.dims, dims.dims);
    return dims;
}

axcl::DataType slot_type(const sim::IoSlot& slot) { return slot.type; }
axcl::DataLayout slot_layout(const sim::IoSlot&) { return axcl::DataLayout::none; }

axcl::Error set_buffer(Runtime& runtime, axcl::Io io, Side side, std::uint32_t index, const void* device, std::uint64_t size) {
    const auto found = runtime.bindings.find(io);
    if (found == nullptr || device == nullptr) return axcl::kEngineNull;
    if (size == 0 || !found->set(side, index, {device, size})) return axcl::kEngineIllegal;
    return axcl::kSuccess;
}

axcl::Error get_buffer(Runtime& runtime, axcl::Io io, Side side, std::uint32_t index, void** device, std::uint64_t* size) {
    const auto found = runtime.bindings.find(io);
    if (found == nullptr || device == nullptr || size == nullptr) return axcl::kEngineNull;
    const auto buffer = found->get(side, index);
    if (!buffer) return axcl::kEngineIllegal;
    *device = const_cast<void*>(buffer->device);
    *size = buffer->size;
    return axcl::kSuccess;
}

template <class Use>
axcl::Error by_name(Runtime& runtime, axcl::Io io, Side side, const char* name, Use use) {
    const auto found = runtime.bindings.find(io);
    if (found == nullptr || name == nullptr) return axcl::kEngineNull;
    const auto index = found->index_of(side, name);
    return index ? use(*index) : axcl::kEngineIllegal;
}

}  // namespace

axcl::Error axclrtEngineGetIOInfo(axcl::ModelId model, axcl::IoInfo* info) noexcept try {
    auto& runtime = counted(Call::axclrtEngineGetIOInfo);
    if (info == nullptr) return axcl::kEngineNull;
    if (model == 0) return axcl::kEngineIllegal;
    if (!runtime.is_bound()) return axcl::kNoBoundContext;
    const auto engine = runtime.engine(model);
    if (engine == nullptr) return axcl::kEngineIllegal;
    auto description = std::make_shared<sim::IoDescription>(sim::IoDescription{engine});
    *info = runtime.descriptions.add(std::move(description));
    return axcl::kSuccess;
} SIM_BOUNDARY(axclrtEngineGetIOInfo)

axcl::Error axclrtEngineDestroyIOInfo(axcl::IoInfo info) noexcept try {
    return counted(Call::axclrtEngineDestroyIOInfo).descriptions.remove(info) == nullptr ? axcl::kEngineNull : axcl::kSuccess;
} SIM_BOUNDARY(axclrtEngineDestroyIOInfo)

axcl::Error axclrtEngineGetShapeGroupsCount(axcl::IoInfo info, std::int32_t* count) noexcept try {
    const auto found = counted(Call::axclrtEngineGetShapeGroupsCount).descriptions.find(info);
    if (found == nullptr || count == nullptr) return axcl::kEngineNull;
    *count = static_cast<std::int32_t>(found->engine->groups.size());
    return axcl::kSuccess;
} SIM_BOUNDARY(axclrtEngineGetShapeGroupsCount)

std::uint32_t axclrtEngineGetNumInputs(axcl::IoInfo info) noexcept try {
    return slot_count(counted(Call::axclrtEngineGetNumInputs), info, Side::input);
} SIM_BOUNDARY(axclrtEngineGetNumInputs)

std::uint32_t axclrtEngineGetNumOutputs(axcl::IoInfo info) noexcept try {
    return slot_count(counted(Call::axclrtEngineGetNumOutputs), info, Side::output);
} SIM_BOUNDARY(axclrtEngineGetNumOutputs)

std::uint64_t axclrtEngineGetInputSizeByIndex(axcl::IoInfo info, std::uint32_t group, std::uint32_t index) noexcept try {
    return slot_size(counted(Call::axclrtEngineGetInputSizeByIndex), info, Side::input, group, index);
} SIM_BOUNDARY(axclrtEngineGetInputSizeByIndex)

std::uint64_t axclrtEngineGetOutputSizeByIndex(axcl::IoInfo info, std::uint32_t group, std::uint32_t index) noexcept try {
    return slot_size(counted(Call::axclrtEngineGetOutputSizeByIndex), info, Side::output, group, index);
} SIM_BOUNDARY(axclrtEngineGetOutputSizeByIndex)

const char* axclrtEngineGetInputNameByIndex(axcl::IoInfo info, std::uint32_t index) noexcept try {
    return slot_name(counted(Call::axclrtEngineGetInputNameByIndex), info, Side::input, index);
} SIM_BOUNDARY(axclrtEngineGetInputNameByIndex)

const char* axclrtEngineGetOutputNameByIndex(axcl::IoInfo info, std::uint32_t index) noexcept try {
    return slot_name(counted(Call::axclrtEngineGetOutputNameByIndex), info, Side::output, index);
} SIM_BOUNDARY(axclrtEngineGetOutputNameByIndex)

std::int32_t axclrtEngineGetInputIndexByName(axcl::IoInfo info, const char* name) noexcept try {
    return slot_index(counted(Call::axclrtEngineGetInputIndexByName), info, Side::input, name);
} SIM_BOUNDARY(axclrtEngineGetInputIndexByName)

std::int32_t axclrtEngineGetOutputIndexByName(axcl::IoInfo info, const char* name) noexcept try {
    return slot_index(counted(Call::axclrtEngineGetOutputIndexByName), info, Side::output, name);
} SIM_BOUNDARY(axclrtEngineGetOutputIndexByName)

axcl::Error axclrtEngineGetInputDims(axcl::IoInfo info, std::uint32_t group, std::uint32_t index, axcl::IoDims* dims) noexcept try {
    return query(counted(Call::axclrtEngineGetInputDims), info, Side::input, group, index, dims, slot_dims);
} SIM_BOUNDARY(axclrtEngineGetInputDims)

axcl::Error axclrtEngineGetOutputDims(axcl::IoInfo info, std::uint32_t group, std::uint32_t index, axcl::IoDims* dims) noexcept try {
    return query(counted(Call::axclrtEngineGetOutputDims), info, Side::output, group, index, dims, slot_dims);
} SIM_BOUNDARY(axclrtEngineGetOutputDims)

axcl::Error axclrtEngineGetInputDataType(axcl::IoInfo info, std::uint32_t index, axcl::DataType* type) noexcept try {
    return query(counted(Call::axclrtEngineGetInputDataType), info, Side::input, 0, index, type, slot_type);
} SIM_BOUNDARY(axclrtEngineGetInputDataType)

axcl::Error axclrtEngineGetOutputDataType(axcl::IoInfo info, std::uint32_t index, axcl::DataType* type) noexcept try {
    return query(counted(Call::axclrtEngineGetOutputDataType), info, Side::output, 0, index, type, slot_type);
} SIM_BOUNDARY(axclrtEngineGetOutputDataType)

axcl::Error axclrtEngineGetInputDataLayout(axcl::IoInfo info, std::uint32_t index, axcl::DataLayout* layout) noexcept try {
    return query(counted(Call::axclrtEngineGetInputDataLayout), info, Side::input, 0, index, layout, slot_layout);
} SIM_BOUNDARY(axclrtEngineGetInputDataLayout)

axcl::Error axclrtEngineGetOutputDataLayout(axcl::IoInfo info, std::uint32_t index, axcl::DataLayout* layout) noexcept try {
    return query(counted(Call::axclrtEngineGetOutputDataLayout), info, Side::output, 0, index, layout, slot_layout);
} SIM_BOUNDARY(axclrtEngineGetOutputDataLayout)

axcl::Error axclrtEngineCreateIO(axcl::IoInfo info, axcl::Io* io) noexcept try {
    auto& runtime = counted(Call::axclrtEngineCreateIO);
    const auto found = runtime.descriptions.find(info);
    if (found == nullptr || io == nullptr) return axcl::kEngineNull;
    *io = runtime.bindings.add(std::make_shared<sim::IoBinding>(*found));
    return axcl::kSuccess;
} SIM_BOUNDARY(axclrtEngineCreateIO)

axcl::Error axclrtEngineDestroyIO(axcl::Io io) noexcept try {
    return counted(Call::axclrtEngineDestroyIO).bindings.remove(io) == nullptr ? axcl::kEngineNull : axcl::kSuccess;
} SIM_BOUNDARY(axclrtEngineDestroyIO)

axcl::Error axclrtEngineSetInputBufferByIndex(axcl::Io io, std::uint32_t index, const void* device, std::uint64_t size) noexcept try {
    return set_buffer(counted(Call::axclrtEngineSetInputBufferByIndex), io, Side::input, index, device, size);
} SIM_BOUNDARY(axclrtEngineSetInputBufferByIndex)

axcl::Error axclrtEngineSetOutputBufferByIndex(axcl::Io io, std::uint32_t index, const void* device, std::uint64_t size) noexcept try {
    return set_buffer(counted(Call::axclrtEngineSetOutputBufferByIndex), io, Side::output, index, device, size);
} SIM_BOUNDARY(axclrtEngineSetOutputBufferByIndex)

axcl::Error axclrtEngineSetInputBufferByName(axcl::Io io, const char* name, const void* device, std::uint64_t size) noexcept try {
    auto& runtime = counted(Call::axclrtEngineSetInputBufferByName);
    return by_name(runtime, io, Side::input, name,
                   [&](std::uint32_t index) { return set_buffer(runtime, io, Side::input, index, device, size); });
} SIM_BOUNDARY(axclrtEngineSetInputBufferByName)

axcl::Error axclrtEngineSetOutputBufferByName(axcl::Io io, const char* name, const void* device, std::uint64_t size) noexcept try {
    auto& runtime = counted(Call::axclrtEngineSetOutputBufferByName);
    return by_name(runtime, io, Side::output, name,
                   [&](std::uint32_t index) { return set_buffer(runtime, io, Side::output, index, device, size); });
} SIM_BOUNDARY(axclrtEngineSetOutputBufferByName)

axcl::Error axclrtEngineGetInputBufferByIndex(axcl::Io io, std::uint32_t index, void** device, std::uint64_t* size) noexcept try {
    return get_buffer(counted(Call::axclrtEngineGetInputBufferByIndex), io, Side::input, index, device, size);
} SIM_BOUNDARY(axclrtEngineGetInputBufferByIndex)

axcl::Error axclrtEngineGetOutputBufferByIndex(axcl::Io io, std::uint32_t index, void** device, std::uint64_t* size) noexcept try {
    return get_buffer(counted(Call::axclrtEngineGetOutputBufferByIndex), io, Side::output, index, device, size);
} SIM_BOUNDARY(axclrtEngineGetOutputBufferByIndex)

axcl::Error axclrtEngineGetInputBufferByName(axcl::Io io, const char* name, void** device, std::uint64_t* size) noexcept try {
    auto& runtime = counted(Call::axclrtEngineGetInputBufferByName);
    return by_name(runtime, io, Side::input, name,
                   [&](std::uint32_t index) { return get_buffer(runtime, io, Side::input, index, device, size); });
} SIM_BOUNDARY(axclrtEngineGetInputBufferByName)

axcl::Error axclrtEngineGetOutputBufferByName(axcl::Io io, const char* name, void** device, std::uint64_t* size) noexcept try {
    auto& runtime = counted(Call::axclrtEngineGetOutputBufferByName);
    return by_name(runtime, io, Side::output, name,
                   [&](std::uint32_t index) { return get_buffer(runtime, io, Side::output, index, device, size); });
} SIM_BOUNDARY(axclrtEngineGetOutputBufferByName)

axcl::Error axclrtEngineSetDynamicBatchSize(axcl::Io io, std::uint32_t) noexcept try {
    const auto found = counted(Call::axclrtEngineSetDynamicBatchSize).bindings.find(io);
    return found == nullptr ? axcl::kEngineNull : axcl::kSuccess;
} SIM_BOUNDARY(axclrtEngineSetDynamicBatchSize)
