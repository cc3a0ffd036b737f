// What the library exports. Every function counts itself; arguments are checked before the context, as the card's does.
#pragma once

#include "axcl_abi.hpp"
#include "boundary.hpp"
#include "runtime.hpp"

#define SIM_DECLARE(result, name, arguments) extern "C" __attribute__((visibility("default"))) result name arguments noexcept;
AXCL_FUNCTIONS(SIM_DECLARE)
AXCL_OPTIONAL_FUNCTIONS(SIM_DECLARE)
AXCL_SIMULATOR_FUNCTIONS(SIM_DECLARE)
#undef SIM_DECLARE

namespace sim {

inline Runtime& counted(Call call) {
    Runtime::get().counters.count(call);
    return Runtime::get();
}

}  // namespace sim
