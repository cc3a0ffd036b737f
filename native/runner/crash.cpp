#include "crash.hpp"

#include <unistd.h>

#include <csignal>

namespace runner {
namespace {

constexpr unsigned kSecondsForFinalize = 3;
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

void give_up(int) {
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, last_line.data(), last_line.size());
    _exit(1);
}

}  // namespace

void set_teardown_limit(unsigned seconds) { teardown_seconds = seconds; }

void limit_teardown(const std::string& line) {
    last_line = line + "\n";
    std::signal(SIGALRM, give_up);
    alarm(teardown_seconds);
}

void install_crash_handler(const Library& library) {
    finalize = library.axclFinalize;
    struct sigaction action {};
    action.sa_handler = finish;
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
    for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) sigaction(signal, &action, nullptr);
}

}  // namespace runner
