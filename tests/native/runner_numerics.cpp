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
    return runner::negative_log_likelihood({logits, n}, target);
}

// -1 for logits that the sampler refuses.
EXPORT void sample_many(const std::uint16_t* logits, std::size_t n, double temperature, std::uint64_t top_k,
                        double top_p, std::uint64_t seed, std::int32_t* picked, std::size_t draws) {
    runner::Sampler sampler({temperature, top_k, top_p, seed});
    for (std::size_t i = 0; i < draws; ++i) {
        try {
            picked[i] = sampler.pick({logits, n});
        } catch (const runner::Fault&) {
            picked[i] = -1;
        }
    }
}
