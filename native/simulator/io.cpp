#include "io.hpp"

#include <algorithm>

namespace sim {
namespace {

std::vector<std::string> names_of(const std::vector<IoSlot>& slots) {
    std::vector<std::string> names;
    for (const IoSlot& slot : slots) names.push_back(slot.name);
    return names;
}

}  // namespace

const IoSlot* IoDescription::find(Side side, std::uint32_t group, std::uint32_t index) const {
    if (group >= engine->groups.size() || index >= slots(side, group).size()) return nullptr;
    return &slots(side, group)[index];
}

IoBinding::IoBinding(const IoDescription& description)
    : input_names_(names_of(description.slots(Side::input))), output_names_(names_of(description.slots(Side::output))) {
    bindings_.inputs.resize(input_names_.size());
    bindings_.outputs.resize(output_names_.size());
}

std::optional<std::uint32_t> IoBinding::index_of(Side side, const char* name) const {
    const auto found = std::ranges::find(names(side), name);
    if (found == names(side).end()) return std::nullopt;
    return static_cast<std::uint32_t>(found - names(side).begin());
}

bool IoBinding::set(Side side, std::uint32_t index, BoundBuffer buffer) {
    const std::lock_guard lock(mutex_);
    auto& slots = side == Side::input ? bindings_.inputs : bindings_.outputs;
    if (index >= slots.size()) return false;
    slots[index] = buffer;
    return true;
}

std::optional<BoundBuffer> IoBinding::get(Side side, std::uint32_t index) const {
    const std::lock_guard lock(mutex_);
    const auto& slots = side == Side::input ? bindings_.inputs : bindings_.outputs;
    if (index >= slots.size()) return std::nullopt;
    return slots[index];
}

Bindings IoBinding::snapshot() const {
    const std::lock_guard lock(mutex_);
    return bindings_;
}

bool IoBinding::used_with_other_group(std::uint64_t model, std::uint32_t group) {
    const std::lock_guard lock(mutex_);
    const Use use{model, group};
    if (!first_use_) first_use_ = use;
    return *first_use_ != use;
}

}  // namespace sim
