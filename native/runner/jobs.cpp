#include "jobs.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <span>

#include "faults.hpp"
#include "logsoftmax.hpp"

namespace runner {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void check_tokens(const Chain& chain, const std::vector<std::int32_t>& tokens) {
    if (tokens.empty()) throw Fault("tokens: expected one or more, found none");
    if (tokens.size() > chain.context()) {
        throw Fault("tokens: expected at most " + std::to_string(chain.context()) +
                    " (the context of the set), found " + std::to_string(tokens.size()));
    }
    const Vocabulary& known = chain.vocabulary();
    for (const std::int32_t token : tokens) {
        if (known.has(token)) continue;
        throw Fault("tokens: expected ids below " + std::to_string(known.tokens()) + ", found " +
                    std::to_string(token));
    }
}

using Rows = std::vector<std::optional<std::size_t>>;

// The rows of the logits that tokens[1..] are looked up in; one that is not kept has none, and is refused unless `absent` may be.
Rows target_rows(const Vocabulary& vocabulary, std::span<const std::int32_t> tokens, bool absent) {
    Rows rows;
    for (const std::int32_t token : tokens.subspan(1)) {
        rows.emplace_back(vocabulary.row(token));
        if (!rows.back() && !absent) throw Fault("tokens: id " + std::to_string(token) + " is not kept (filename_vocab_keep)");
    }
    return rows;
}

// A file that appears under its name only when it is complete.
class NewFile {
  public:
    explicit NewFile(fs::path path) : path_(std::move(path)), temporary_(path_.string() + ".XXXXXX") {
        fd_ = mkostemp(temporary_.data(), O_CLOEXEC);
        if (fd_ < 0) fail();
    }
    NewFile(const NewFile&) = delete;
    NewFile& operator=(const NewFile&) = delete;
    ~NewFile() {
        close(fd_);
        if (!temporary_.empty()) unlink(temporary_.c_str());
    }

    void append(std::span<const std::byte> bytes) {
        while (!bytes.empty()) {
            const ssize_t written = write(fd_, bytes.data(), bytes.size());
            if (written < 0 && errno != EINTR) fail();
            if (written > 0) bytes = bytes.subspan(static_cast<std::size_t>(written));
        }
    }

    void publish() {
        constexpr mode_t kReadable = 0644;
        if (fchmod(fd_, kReadable) != 0 || fsync(fd_) != 0 || rename(temporary_.c_str(), path_.c_str()) != 0) fail();
        temporary_.clear();
    }

  private:
    [[noreturn]] void fail() const { throw Fault(path_.string() + ": cannot be written: " + std::strerror(errno)); }

    fs::path path_;
    std::string temporary_;
    int fd_ = -1;
};

static_assert(std::endian::native == std::endian::little, "logits are written as they lie in memory");

}  // namespace

GenerateResult generate(Chain& chain, const GenerateRequest& request, const std::function<void(std::int32_t)>& emit) {
    check_tokens(chain, request.tokens);
    chain.reset();
    const auto start = Clock::now();
    std::uint32_t last_row = 0;
    for (std::span<const std::int32_t> rest(request.tokens); !rest.empty();) {
        const std::uint32_t done = chain.step(rest, request.prefill);
        last_row = done - 1;
        rest = rest.subspan(done);
    }
    std::span<const std::uint16_t> logits = chain.logits(last_row);
    GenerateResult result{"length", request.tokens.size(), 0, seconds_since(start), 0};
    const auto decode_start = Clock::now();
    Sampler sampler(request.sampling);
    while (result.generated < request.max_tokens) {
        const std::int32_t token = chain.vocabulary().token(sampler.pick(logits));
        ++result.generated;
        emit(token);
        if (std::ranges::find(request.eos, token) != request.eos.end()) {
            result.reason = "eos";
            break;
        }
        if (result.generated == request.max_tokens) break;
        if (chain.full()) {
            result.reason = "context";
            break;
        }
        chain.step({&token, 1}, false);
        logits = chain.logits(0);
    }
    result.decode_s = seconds_since(decode_start);
    return result;
}

ScoreResult score(Chain& chain, const ScoreRequest& request) {
    check_tokens(chain, request.tokens);
    const auto targets = target_rows(chain.vocabulary(), request.tokens, request.logits.has_value());
    std::unique_ptr<NewFile> file;
    if (request.logits) file = std::make_unique<NewFile>(*request.logits);
    chain.reset();
    const std::span<const std::int32_t> tokens(request.tokens);
    ScoreResult result;
    ExpTable table;
    while (result.positions < tokens.size()) {
        const std::uint32_t done = chain.step(tokens.subspan(result.positions), request.prefill);
        for (std::uint32_t row = 0; row < done; ++row) {
            const std::uint64_t next = ++result.positions;
            if (next == tokens.size() && !file) break;
            const auto logits = chain.logits(row);
            check_logits(logits);
            if (file) file->append(std::as_bytes(logits));
            if (next == tokens.size()) break;
            const auto target = targets[next - 1];
            const double absent = std::numeric_limits<double>::quiet_NaN();
            result.nll.push_back(target ? negative_log_likelihood(logits, *target, table) : absent);
        }
    }
    if (file) file->publish();
    return result;
}

}  // namespace runner
