// One line per fault, on stderr, in the manner of the real library's log.
#pragma once

#include <cstdint>
#include <string>

namespace sim {

void log_error(const std::string& line);
void set_log_level(std::int32_t level);
std::int32_t log_level();

}  // namespace sim
