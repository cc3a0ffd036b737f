#include "ladder.hpp"

#include <algorithm>
#include <tuple>

namespace runner {
namespace {

constexpr std::uint16_t kOn = 0;
constexpr std::uint16_t kOff = 0xC780;  // -65536, the vendor runner's value

std::uint32_t capacity(const Group& group, const LayerShape& shape, std::uint64_t history, std::uint64_t waiting) {
    const bool decode = group.tokens == 1;
    if (history > group.history || (!decode && group.tokens < kMinChunkTokens)) return 0;
    return static_cast<std::uint32_t>(std::min<std::uint64_t>({group.tokens, waiting, shape.context - history}));
}

}  // namespace

Chunk next_chunk(const LayerShape& shape, std::uint64_t history, std::uint64_t waiting, bool prefill) {
    Chunk best{nullptr, 0};
    for (const Group& group : shape.groups) {
        const std::uint32_t tokens = prefill || group.tokens == 1 ? capacity(group, shape, history, waiting) : 0;
        if (tokens == 0) continue;
        const auto cost = [](const Chunk& c) {
            return std::tuple(-std::int64_t{c.tokens}, c.group->tokens, c.group->history);
        };
        const Chunk candidate{&group, tokens};
        if (best.group == nullptr || cost(candidate) < cost(best)) best = candidate;
    }
    return best;
}

void fill_mask(const Group& group, std::uint64_t history, std::uint32_t tokens, std::uint64_t window,
               std::span<std::uint16_t> mask) {
    const std::size_t columns = std::size_t{group.history} + group.tokens;
    std::ranges::fill(mask, kOff);
    for (std::uint32_t r = 0; r < tokens; ++r) {
        const auto row = mask.subspan(r * columns, columns);
        const std::uint64_t end = history + r + 1, first = end - std::min(end, window);  // positions that r sees
        const std::uint64_t cached = std::min(first, history), own = std::max(first, history);
        std::ranges::fill(row.subspan(cached, history - cached), kOn);
        std::ranges::fill(row.subspan(group.history + (own - history), end - own), kOn);
    }
}

}  // namespace runner
