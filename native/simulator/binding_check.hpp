// The binding contract that the card does not enforce: every slot bound, at the base of a buffer, with the declared
// size, outputs apart from inputs and from each other.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "io.hpp"
#include "memory.hpp"
#include "report.hpp"

namespace sim {

struct CheckedBindings {
    std::vector<std::optional<Span>> inputs, outputs;  // as much of each buffer as there is
    std::vector<Breach> breaches;
    bool foreign = false;  // a pointer that the card does not know: execution fails
};

CheckedBindings check_bindings(const Group& group, const Bindings& bindings, const DeviceMemory& memory);

}  // namespace sim
