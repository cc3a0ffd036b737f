#pragma once

#include <string>

#include "library.hpp"

namespace runner {

// On SIGSEGV, SIGBUS, SIGILL, SIGFPE or SIGABRT: axclFinalize under an alarm of 3 s, on a stack of its own, then die of
// the signal as usual. A card whose process vanishes in the middle of a call stays wedged until it is rebooted.
void install_crash_handler(const Library& library);

// Seconds that giving the card back may take.
void set_teardown_limit(unsigned seconds);

// From now on the process ends within that time, with `line` on standard error and status 1: calls to a card that has
// dropped off the bus never return. The first caller starts the clock.
void limit_teardown(const std::string& line);

// The same from a signal's handler, without a line and with `status`.
void limit_teardown(int status) noexcept;

}  // namespace runner
