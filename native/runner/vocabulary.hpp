// Token ids, and which of them the post engine has a row for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace runner {

class Vocabulary {
  public:
    Vocabulary() = default;
    // Row i is token i.
    explicit Vocabulary(std::uint64_t tokens) : tokens_(tokens) {}
    // A trimmed head: row i is token kept[i]. Throws Fault, which begins with `where`, unless they are distinct ids.
    Vocabulary(std::uint64_t tokens, std::vector<std::int32_t> kept, const std::string& where);

    std::uint64_t tokens() const { return tokens_; }
    std::uint64_t rows() const { return kept_.empty() ? tokens_ : kept_.size(); }
    bool trimmed() const { return !kept_.empty(); }

    bool has(std::int32_t token) const { return token >= 0 && static_cast<std::uint64_t>(token) < tokens_; }
    std::int32_t token(std::size_t row) const { return kept_.empty() ? static_cast<std::int32_t>(row) : kept_[row]; }
    // None for a token that is not kept.
    std::optional<std::size_t> row(std::int32_t token) const;

  private:
    std::uint64_t tokens_ = 0;
    std::vector<std::int32_t> kept_;  // empty: all
    std::vector<std::int32_t> rows_;  // by token, -1 for one that is not kept
};

// The ids in `file`, a JSON array: row i of the logits is token ids[i]. Throws Fault.
Vocabulary read_vocabulary(std::uint64_t tokens, const std::filesystem::path& file);

}  // namespace runner
