// The runner's exp, log, log-softmax and sampler behind a C interface, for test_runner_numerics.py.
#include "logsoftmax.hpp"
#include "sampler.cpp"
#include "sampler.hpp"

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT void exp_many(const double* x, double* y, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) y[i] = runner::exp_fixed(x[i]);
}

EXPORT void log_many(const double* x, double* y, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) y[i] = runner::log_fixed(x[i]);
}

EXPORT double nll(const std::uint16_t* logits, std::size_t n, std::size_t target) {
    runner::ExpTable table;
    return runner::negative_log_likelihood({logits, n}, target, table);
}

// By the definition, every exponential computed; `table` must not change a bit.
EXPORT bool nll_is_exact(const std::uint16_t* logits, std::size_t n, std::size_t rows) {
    runner::ExpTable table;
    bool exact = true;
    for (std::size_t row = 0; row < rows; ++row, logits += n) {
        const std::span<const std::uint16_t> z(logits, n);
        double max = runner::bf16_value(z[0]), sum = 0;
        for (const std::uint16_t bits : z) max = std::max(max, runner::bf16_value(bits));
        for (const std::uint16_t bits : z) sum += runner::exp_fixed(runner::bf16_value(bits) - max);
        const double expected = runner::log_fixed(sum) - (runner::bf16_value(z[row]) - max);
        exact = exact && runner::negative_log_likelihood(z, row, table) == expected;
    }
    return exact;
}

// -1 for logits that the sampler refuses.
EXPORT void sample_many(const std::uint16_t* logits, std::size_t n, double temperature, std::uint64_t top_k,
                        double top_p, std::uint64_t seed, std::int32_t* picked, std::size_t draws) {
    runner::Sampler sampler({temperature, top_k, top_p, seed});
    for (std::size_t i = 0; i < draws; ++i) {
        try {
            picked[i] = static_cast<std::int32_t>(sampler.pick({logits, n}));
        } catch (const runner::Fault&) {
            picked[i] = -1;
        }
    }
}
