// The two host-side objects of the binding contract: what an engine takes (IoDescription), and what was bound (IoBinding).
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine.hpp"

namespace sim {

enum class Side { input, output };

// Names, types and layouts are group 0's; sizes and dimensions are per group.
struct IoDescription {
    std::shared_ptr<const Engine> engine;

    const std::vector<IoSlot>& slots(Side side, std::size_t group = 0) const {
        const Group& of = engine->groups[group];
        return side == Side::input ? of.inputs : of.outputs;
    }
    // Null for a group or an index that there is not.
    const IoSlot* find(Side side, std::uint32_t group, std::uint32_t index) const;
};

struct BoundBuffer {
    const void* device = nullptr;
    std::uint64_t size = 0;
};

struct Bindings {
    std::vector<BoundBuffer> inputs, outputs;
};

// Names are copied and the description is not kept. Binding compares nothing: the card does, at execution.
class IoBinding {
public:
    explicit IoBinding(const IoDescription& description);

    std::optional<std::uint32_t> index_of(Side side, const char* name) const;
    bool set(Side side, std::uint32_t index, BoundBuffer buffer);
    std::optional<BoundBuffer> get(Side side, std::uint32_t index) const;

    Bindings snapshot() const;
    // Whether this object was executed with another group before.
    bool used_with_other_group(std::uint64_t model, std::uint32_t group);

private:
    struct Use {
        std::uint64_t model;
        std::uint32_t group;
        bool operator==(const Use&) const = default;
    };
    const std::vector<std::string>& names(Side side) const { return side == Side::input ? input_names_ : output_names_; }

    std::vector<std::string> input_names_, output_names_;
    mutable std::mutex mutex_;
    Bindings bindings_;
    std::optional<Use> first_use_;
};

}  // namespace sim
