// From logits to a row of them: greedy, or seeded temperature / top-k / top-p. The same on every machine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace runner {

struct Sampling {
    double temperature = 0;   // 0: greedy, ties go to the lowest row
    std::uint64_t top_k = 0;  // 0: all
    double top_p = 1;         // the fewest most likely tokens that reach this probability
    std::uint64_t seed = 0;
};

class Sampler {
  public:
    explicit Sampler(const Sampling& sampling) : sampling_(sampling) {}

    // The next token's row. Candidates are ordered by falling logit, ties by row; top-k cuts first, then top-p.
    // Throws Fault for logits that are NaN or +inf, or all -inf.
    std::size_t pick(std::span<const std::uint16_t> logits);

  private:
    double uniform();

    Sampling sampling_;
    std::uint64_t draws_ = 0;
    std::vector<std::uint32_t> order_;
    std::vector<double> weights_;
};

// Throws Fault unless every logit is a number below +inf and one is finite.
void check_logits(std::span<const std::uint16_t> logits);

}  // namespace runner
