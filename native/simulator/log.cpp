#include "log.hpp"

#include <atomic>
#include <cstdio>

namespace sim {
namespace {

constexpr std::int32_t kError = 4;
std::atomic<std::int32_t> current_level{kDefaultLogLevel};

}  // namespace

void log_error(const char* about, const char* reason) noexcept {
    if (current_level <= kError) std::fprintf(stderr, "axcl_rt: %s: %s\n", about, reason);
}

void log_error(const std::string& line) {
    if (current_level <= kError) std::fprintf(stderr, "axcl_rt: %s\n", line.c_str());
}

void set_log_level(std::int32_t level) { current_level = level; }

std::int32_t log_level() { return current_level; }

}  // namespace sim
