// Lines from standard input and to standard output, without losing a signal.
#pragma once

#include <optional>
#include <string>

namespace runner {

class LineReader {
  public:
    explicit LineReader(int fd) : fd_(fd) {}

    // The next line without its end; none at the end of input. Throws Fault for a line that is too long, Interrupted.
    std::optional<std::string> next();

  private:
    int fd_;
    bool over_ = false;
    std::string pending_;
};

// Writes the line and its end to standard output at once. Throws OutputClosed when nobody reads.
void print_line(const std::string& line);

}  // namespace runner
