#pragma once

#include "library.hpp"

namespace runner {

// On SIGSEGV, SIGBUS, SIGILL, SIGFPE or SIGABRT: axclFinalize under an alarm of 3 s, then die of the signal as usual.
// A card whose process vanishes in the middle of a call stays wedged until it is rebooted.
void install_crash_handler(const Library& library);

}  // namespace runner
