// SIGINT, SIGTERM and SIGHUP noted at any time, acted upon between driver calls: a process killed inside one wedges the
// card.
#pragma once

namespace runner::signals {

// Installs the handlers and ignores SIGPIPE. Once per process.
void install();

// Throws Interrupted if a signal has arrived.
void check();

// Waits `milliseconds`; throws Interrupted as soon as a signal arrives.
void pause(int milliseconds);

// Waits until `fd` can be read or is closed; throws Interrupted as soon as a signal arrives.
void wait_readable(int fd);

}  // namespace runner::signals
