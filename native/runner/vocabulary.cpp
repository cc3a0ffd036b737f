#include "vocabulary.hpp"

#include <limits>
#include <utility>

#include "faults.hpp"
#include "shown.hpp"

namespace runner {
namespace {

using nlohmann::json;

json read_array(const std::filesystem::path& file) {
    json value = read_json(file);
    if (value.is_array()) return value;
    throw Fault(file.string() + ": is not a JSON array of token ids");
}

}  // namespace

Vocabulary::Vocabulary(std::uint64_t tokens, std::vector<std::int32_t> kept, const std::string& where)
    : tokens_(tokens), kept_(std::move(kept)), rows_(tokens, -1) {
    if (kept_.empty()) throw Fault(where + ": expected token ids, found none");
    for (std::size_t row = 0; row < kept_.size(); ++row) {
        const std::string found = ", found " + std::to_string(kept_[row]) + " in row " + std::to_string(row);
        if (!has(kept_[row])) throw Fault(where + ": expected ids below " + std::to_string(tokens_) + found);
        std::int32_t& known = rows_[static_cast<std::size_t>(kept_[row])];
        if (known >= 0) throw Fault(where + ": expected every id once" + found + " and " + std::to_string(known));
        known = static_cast<std::int32_t>(row);
    }
}

std::optional<std::size_t> Vocabulary::row(std::int32_t token) const {
    if (!trimmed()) return static_cast<std::size_t>(token);
    const std::int32_t row = rows_[static_cast<std::size_t>(token)];
    if (row < 0) return std::nullopt;
    return static_cast<std::size_t>(row);
}

Vocabulary read_vocabulary(std::uint64_t tokens, const std::filesystem::path& file) {
    std::vector<std::int32_t> kept;
    for (const json& id : read_array(file)) {
        const bool fits =
            id.is_number_unsigned() && id.get<std::uint64_t>() <= std::numeric_limits<std::int32_t>::max();
        if (!fits) throw Fault(file.string() + ": expected token ids, found " + shown(id));
        kept.push_back(id.get<std::int32_t>());
    }
    return {tokens, std::move(kept), file.string()};
}

}  // namespace runner
