// One line per fault, on stderr, in the manner of the real library's log.
#pragma once

#include <cstdint>
#include <string>

namespace sim {

void log_error(const std::string& line);
// The same without asking for memory.
void log_error(const char* about, const char* reason) noexcept;
// Levels of the real library: 0 trace to 5 critical, 6 off; 2 is its default.
inline constexpr std::int32_t kDefaultLogLevel = 2;
void set_log_level(std::int32_t level);
std::int32_t log_level();

}  // namespace sim
