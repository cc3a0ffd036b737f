#include "signals.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>

#include "crash.hpp"
#include "faults.hpp"

namespace runner::signals {
namespace {

volatile std::sig_atomic_t received = 0;
std::array<int, 2> wake{-1, -1};  // a byte arrives here with each signal, so that no wait can miss one

void note(int signal) {
    const int saved = errno;
    received = signal;
    limit_teardown(kExitSignal + signal);
    const char byte = 0;
    [[maybe_unused]] const ssize_t written = write(wake[1], &byte, 1);
    errno = saved;
}

// True when `fd` is readable, false when the time is over. `fd` < 0: only time and signals count.
bool wait(int fd, int milliseconds) {
    std::array<pollfd, 2> watched{pollfd{wake[0], POLLIN, 0}, pollfd{fd, POLLIN, 0}};
    const int ready = poll(watched.data(), watched.size(), milliseconds);
    check();
    if (ready < 0 && errno != EINTR) throw Fault("poll failed");
    return ready > 0 && watched[1].revents != 0;
}

}  // namespace

void install() {
    if (pipe2(wake.data(), O_CLOEXEC | O_NONBLOCK) != 0) throw Fault("no pipe for signals");
    struct sigaction action {};
    action.sa_handler = note;
    sigfillset(&action.sa_mask);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
    std::signal(SIGPIPE, SIG_IGN);
}

void check() {
    if (received != 0) throw Interrupted{static_cast<int>(received)};
}

void pause(int milliseconds) {
    using clock = std::chrono::steady_clock;
    const auto end = clock::now() + std::chrono::milliseconds(milliseconds);
    for (auto left = end - clock::now(); left.count() > 0; left = end - clock::now()) {
        wait(-1, static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count()));
    }
}

void wait_readable(int fd) {
    while (!wait(fd, -1)) {
    }
}

}  // namespace runner::signals
