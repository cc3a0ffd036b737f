#include "sampler.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "faults.hpp"
#include "logsoftmax.hpp"

namespace runner {
namespace {

constexpr std::uint16_t kInfinity = 0x7F80, kMinusInfinity = 0xFF80, kMagnitude = 0x7FFF;

// Unsigned keys that rise as the bf16 value falls; both zeros share one.
std::uint16_t falling_key(std::uint16_t bits) {
    if ((bits & kMagnitude) == 0) return 0x7FFF;
    return static_cast<std::uint16_t>((bits & 0x8000U) != 0 ? bits : 0x7FFFU - bits);
}

// Stable counting sort: bf16 has only 65536 values, so this is linear.
void order_by_falling_logit(std::span<const std::uint16_t> logits, std::vector<std::uint32_t>& order) {
    std::array<std::uint32_t, 0x10001> start{};
    for (const std::uint16_t bits : logits) ++start[falling_key(bits) + 1U];
    for (std::size_t key = 1; key < start.size(); ++key) start[key] += start[key - 1];
    order.resize(logits.size());
    for (std::uint32_t i = 0; i < logits.size(); ++i) order[start[falling_key(logits[i])]++] = i;
}

std::size_t greedy(std::span<const std::uint16_t> logits) {
    const auto best = std::ranges::min_element(logits, {}, falling_key);
    return static_cast<std::size_t>(best - logits.begin());
}

}  // namespace

void check_logits(std::span<const std::uint16_t> logits) {
    bool finite = false;
    for (std::size_t i = 0; i < logits.size(); ++i) {
        const std::uint16_t magnitude = logits[i] & kMagnitude;
        if (magnitude > kInfinity || logits[i] == kInfinity) {
            throw Fault("the engines returned a logit that is not a number, row " + std::to_string(i));
        }
        finite = finite || logits[i] != kMinusInfinity;
    }
    if (!finite) throw Fault("the engines returned no finite logit");
}

std::size_t Sampler::pick(std::span<const std::uint16_t> logits) {
    check_logits(logits);
    if (sampling_.temperature == 0) return greedy(logits);
    order_by_falling_logit(logits, order_);
    const std::size_t top_k =
        sampling_.top_k == 0 ? logits.size() : std::min<std::size_t>(sampling_.top_k, logits.size());
    const double max = bf16_value(logits[order_[0]]);
    weights_.resize(top_k);
    double total = 0;
    for (std::size_t i = 0; i < top_k; ++i) {
        // Equal logits stand together.
        const bool again = i > 0 && logits[order_[i]] == logits[order_[i - 1]];
        weights_[i] =
            again ? weights_[i - 1] : exp_fixed((bf16_value(logits[order_[i]]) - max) / sampling_.temperature);
        total += weights_[i];
    }
    std::size_t kept = 0;
    double sum = 0;
    while (kept < top_k && (kept == 0 || sum < sampling_.top_p * total)) sum += weights_[kept++];
    const double point = uniform() * sum;
    std::size_t i = 0;
    for (double reached = weights_[0]; i + 1 < kept && reached <= point; reached += weights_[i]) ++i;
    return order_[i];
}

// SplitMix64 (Steele, Lea, Flood 2014) at counter `draws_`: the n-th draw of a seed needs no state but n.
double Sampler::uniform() {
    std::uint64_t x = sampling_.seed + ++draws_ * 0x9E3779B97F4A7C15U;
    x = (x ^ x >> 30U) * 0xBF58476D1CE4E5B9U;
    x = (x ^ x >> 27U) * 0x94D049BB133111EBU;
    x ^= x >> 31U;
    return static_cast<double>(x >> 11U) * 0x1p-53;
}

}  // namespace runner
