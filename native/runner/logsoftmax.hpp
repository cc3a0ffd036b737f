// Log-softmax in double with an exp and a log of our own: the same bits on every machine and C library.
//
// exp(x): NaN gives NaN, x < -745.2 gives 0, x > 709.7 gives +inf; n = rint(x * log2(e)) (ties to even);
//   r = fma(n, -ln2_hi, x), r = fma(n, -ln2_lo, r), |r| <= 0.347; p = sum of r^k / k! for k = 13 … 0 by Horner with
//   fma, coefficients the doubles nearest to 1/k!; the result is ldexp(p, n). Error below 1 ulp where the result is
//   normal.
// log(x), x > 0 and finite: x = m * 2^e with sqrt(1/2) <= m < sqrt(2); s = (m - 1) / (m + 1), z = s * s;
//   q = sum of z^k / (2k + 1) for k = 10 … 1 by Horner with fma, times z; t = fma(2 * s, q, 2 * s);
//   the result is fma(e, ln2_hi, fma(e, ln2_lo, t)). Error below 2 ulp.
// ln2_hi has 32 significant bits, so n * ln2_hi is exact. fma is the correctly rounded one of IEEE 754.
//
// Negative log-likelihood of token t: log_sum - (z[t] - max), log_sum = log of the sum of exp(z[i] - max) in double,
// ascending index, one accumulator.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace runner {

inline constexpr double kLn2Hi = 0x1.62e42feep-1;
inline constexpr double kLn2Lo = 0x1.a39ef35793c76p-33;
inline constexpr double kLog2E = 0x1.71547652b82fep+0;

inline double bf16_value(std::uint16_t bits) {
    return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U));
}

inline double exp_fixed(double x) {
    if (std::isnan(x)) return x;
    if (x < -745.2) return 0.0;
    if (x > 709.7) return std::numeric_limits<double>::infinity();
    constexpr std::array<double, 14> factorials{1,    1,     2,      6,       24,       120,       720,
                                                5040, 40320, 362880, 3628800, 39916800, 479001600, 6227020800};
    const double n = std::nearbyint(x * kLog2E);
    const double r = std::fma(n, -kLn2Lo, std::fma(n, -kLn2Hi, x));
    double p = 1.0 / factorials.back();
    for (std::size_t k = factorials.size() - 1; k-- > 0;) p = std::fma(p, r, 1.0 / factorials[k]);
    return std::ldexp(p, static_cast<int>(n));
}

inline double log_fixed(double x) {
    int e = 0;
    double m = std::frexp(x, &e);
    if (m < 0x1.6a09e667f3bcdp-1) {
        m *= 2;
        --e;
    }
    const double s = (m - 1) / (m + 1);
    const double z = s * s;
    double q = 1.0 / 21;
    for (int k = 9; k >= 1; --k) q = std::fma(q, z, 1.0 / (2 * k + 1));
    const double t = std::fma(2 * s, q * z, 2 * s);
    return std::fma(static_cast<double>(e), kLn2Hi, std::fma(static_cast<double>(e), kLn2Lo, t));
}

// exp(z - max) for bf16 z, each value computed once: a vocabulary has many logits and few distinct ones.
class ExpTable {
  public:
    // Forgets all values and takes a new `max`.
    void start(double max) {
        max_ = max;
        known_.assign(kValues, 0);
        values_.resize(kValues);
    }
    double operator()(std::uint16_t bits) {
        if (known_[bits] == 0) {
            known_[bits] = 1;
            values_[bits] = exp_fixed(bf16_value(bits) - max_);
        }
        return values_[bits];
    }

  private:
    static constexpr std::size_t kValues = std::size_t{1} << 16U;
    double max_ = 0;
    std::vector<std::uint8_t> known_;
    std::vector<double> values_;
};

// -log p(target), in nats. `logits` are bf16, none NaN or +inf, at least one finite; `table` saves memory being made.
inline double negative_log_likelihood(std::span<const std::uint16_t> logits, std::size_t target, ExpTable& table) {
    double max = -std::numeric_limits<double>::infinity();
    for (const std::uint16_t bits : logits) max = std::max(max, bf16_value(bits));
    table.start(max);
    double sum = 0;
    for (const std::uint16_t bits : logits) sum += table(bits);
    return log_fixed(sum) - (bf16_value(logits[target]) - max);
}

}  // namespace runner
