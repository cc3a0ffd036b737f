#include "crash.hpp"

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>

namespace runner {
namespace {

constexpr unsigned kSecondsForFinalize = 3;
constexpr std::size_t kHandlerStack = std::size_t{1} << 20U;  // axclFinalize runs on it
axcl::fn::axclFinalize finalize = nullptr;

volatile std::sig_atomic_t fatal = 0;

void die(int) { raise(static_cast<int>(fatal)); }

// SA_RESETHAND has put the default back: a second fault, or the re-raised first one, ends the process.
void finish(int signal) {
    fatal = signal;
    std::signal(SIGALRM, die);
    alarm(kSecondsForFinalize);
    finalize();
    raise(signal);
}

unsigned teardown_seconds = 30;
std::string last_line;  // whole before the alarm that prints it is set
volatile std::sig_atomic_t last_status = 1;
std::atomic_flag on_the_clock;

void give_up(int) {
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, last_line.data(), last_line.size());
    _exit(static_cast<int>(last_status));
}

}  // namespace

void set_teardown_limit(unsigned seconds) {
    teardown_seconds = seconds;
    std::signal(SIGALRM, give_up);
}

void limit_teardown(const std::string& line) {
    if (on_the_clock.test_and_set()) return;
    last_line = line + "\n";
    alarm(teardown_seconds);
}

void limit_teardown(int status) noexcept {
    if (on_the_clock.test_and_set()) return;
    last_status = status;
    alarm(teardown_seconds);
}

void install_crash_handler(const Library& library) {
    static std::array<std::byte, kHandlerStack> memory;
    finalize = library.axclFinalize;
    // A stack that has overflowed has no room for a handler.
    const stack_t stack{memory.data(), 0, memory.size()};
    sigaltstack(&stack, nullptr);
    struct sigaction action {};
    action.sa_handler = finish;
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER | SA_ONSTACK);
    for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) sigaction(signal, &action, nullptr);
}

}  // namespace runner
