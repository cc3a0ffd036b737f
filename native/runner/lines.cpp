#include "lines.hpp"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "faults.hpp"
#include "signals.hpp"

namespace runner {
namespace {

constexpr std::size_t kMaxLine = std::size_t{1} << 24U;

}  // namespace

std::optional<std::string> LineReader::next() {
    std::size_t searched = 0;
    for (;;) {
        const std::size_t end = pending_.find('\n', searched);
        if (end != std::string::npos || (over_ && !pending_.empty())) {
            std::string line = pending_.substr(0, end);
            pending_.erase(0, end == std::string::npos ? end : end + 1);
            return line;
        }
        if (over_) return std::nullopt;
        if (pending_.size() > kMaxLine) throw Fault("standard input: a line of more than 16 MiB");
        searched = pending_.size();
        signals::wait_readable(fd_);
        std::array<char, 65536> block;
        const ssize_t count = read(fd_, block.data(), block.size());
        if (count < 0 && errno != EINTR && errno != EAGAIN) throw Fault("standard input: cannot be read");
        if (count > 0) pending_.append(block.data(), static_cast<std::size_t>(count));
        over_ = count == 0;
    }
}

void print_line(const std::string& line) {
    const std::string text = line + "\n";
    for (std::string_view rest = text; !rest.empty();) {
        const ssize_t count = write(STDOUT_FILENO, rest.data(), rest.size());
        if (count < 0 && errno != EINTR) throw OutputClosed(std::string("standard output: ") + std::strerror(errno));
        if (count < 0) signals::check();
        if (count > 0) rest.remove_prefix(static_cast<std::size_t>(count));
    }
}

}  // namespace runner
