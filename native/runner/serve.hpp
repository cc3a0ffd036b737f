#pragma once

#include "chain.hpp"
#include "set_config.hpp"

namespace runner {

// JSON lines in, JSON lines out, until the input ends. A request that is wrong is answered and forgotten.
// Throws DeviceFault (after answering with it), Interrupted, Fault when nobody reads the answers.
void serve(const Library& library, Chain& chain, const SetConfig& config);

}  // namespace runner
