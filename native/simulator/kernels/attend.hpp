// Attention of one kv head: scores panel by panel over 32 cache rows, then softmax, then the weighted sum of values.
#pragma once

#include "attend_keys.hpp"
#include "attend_values.hpp"

namespace sim {
namespace {

struct AttendTask {
    const Attend& job;
    std::size_t kv_head, first, count;
    double* queries;
    float* keys;
    double* scores;
    std::uint8_t* zeros;  // per query and block of 16 columns: how many probabilities are exactly 0

    std::size_t columns() const { return job.padded_columns(); }
    std::size_t token(std::size_t query) const { return (first + query) / job.group(); }
    std::size_t head_offset(std::size_t query) const {
        const std::size_t head = kv_head * job.group() + (first + query) % job.group();
        return (token(query) * job.heads + head) * job.head_dim;
    }
};

// Queries of a tile side by side, as pack_tokens has them; false if one is not finite.
bool pack_queries(const AttendTask& task) {
    bool finite = true;
    const std::size_t d = task.job.head_dim;
    for_each_tile(task.count, [&]<std::size_t T>(std::size_t first) {
        for (std::size_t t = 0; t < T; ++t) {
            const float* row = task.job.q + task.head_offset(first + t);
            for (std::size_t k = 0; k < d; ++k) {
                task.queries[first * d + k * T + t] = row[k];
                finite = finite && row[k] - row[k] == 0.0F;
            }
        }
    });
    return finite;
}

// scores = dot * scale + mask; columns from `valid` to 32 are padding and get -inf.
SIM_INLINE void finish_scores(const AttendTask& task, std::size_t query, std::size_t column, std::size_t mask_column,
                              std::size_t valid, const F* dots) {
    std::uint16_t mask[kPanelColumns];
    const std::size_t mask_width = task.job.history + task.job.m;
    const std::uint16_t* from = task.job.mask + task.token(query) * mask_width + mask_column;
    for (std::size_t i = valid; i < kPanelColumns; ++i) mask[i] = 0xFF80;
    std::memcpy(mask, from, valid * sizeof *mask);
    double* out = task.scores + query * task.columns() + column;
    for (std::size_t i = 0; i < kPanelColumns / kLanes; ++i) {
        store(out + i * kLanes, dots[i] * broadcast(task.job.scale) + widen(load<H>(mask + i * kLanes)));
    }
}

void score_panel(const AttendTask& task, bool zero_keys, std::size_t column, std::size_t mask_column, std::size_t valid) {
    const std::size_t d = task.job.head_dim;
    const auto* keys = reinterpret_cast<const std::uint32_t*>(task.keys);
    for_each_tile(task.count, [&]<std::size_t T>(std::size_t first) {
        F dots[T][kPanelColumns / kLanes] = {};
        for (std::size_t unit = 0; unit < kUnits && !zero_keys; ++unit) {
            const std::uint32_t* const w[1] = {keys + unit * kLanes};
            Tile<1, T> total;
            dot_tile(d, total, [&](std::size_t k, std::size_t last, Tile<1, T>& run) SIM_INLINE_LAMBDA {
                run_tile<Fp32Panel>(w, task.queries + first * d, k, last, run);
            });
            for (std::size_t t = 0; t < T; ++t) {
                dots[t][unit] = total.sum[0][0][t];
                dots[t][kUnits + unit] = total.sum[0][1][t];
            }
        }
        for (std::size_t t = 0; t < T; ++t) finish_scores(task, first + t, column, mask_column, valid, dots[t]);
    });
}

void score_all(const AttendTask& task) {
    const Attend& job = task.job;
    const std::size_t d = job.head_dim, stride = job.kv_heads * d;
    const bool finite = pack_queries(task);
    for (std::size_t t = 0; t < job.history; t += kPanelColumns) {
        const std::size_t valid = job.history - t < kPanelColumns ? job.history - t : kPanelColumns;
        const std::uint16_t* rows = job.k_cache + t * stride + task.kv_head * d;
        // Rows of zeros (a cache not yet filled) have a dot product of exactly +0 with any finite query.
        const bool zero = finite && all_zero(rows, stride, valid, d);
        if (!zero) pack_keys(rows, stride, valid, d, task.keys);
        score_panel(task, zero, t, t, valid);
    }
    for (std::size_t t = 0; t < job.m; t += kPanelColumns) {
        const std::size_t valid = job.m - t < kPanelColumns ? job.m - t : kPanelColumns;
        pack_keys(job.k + t * stride + task.kv_head * d, stride, valid, d, task.keys);
        score_panel(task, false, job.padded_history() + t, job.history + t, valid);
    }
}

double top_score(const double* scores, std::size_t columns) {
    F top = load<F>(scores);
    bool nan = any_nan(top);
    for (std::size_t t = kLanes; t < columns; t += kLanes) {
        const F s = load<F>(scores + t);
        nan = nan || any_nan(s);
        top = s > top ? s : top;
    }
    double best = top[0];
    for (std::size_t i = 1; i < kLanes; ++i) best = top[i] > best ? top[i] : best;
    return nan ? __builtin_nan("") : best;
}

// Scores become probabilities; returns their sum in ascending order (adding an exact 0 changes nothing).
double soften(const AttendTask& task, std::size_t query) {
    double* scores = task.scores + query * task.columns();
    std::uint8_t* zeros = task.zeros + query * (task.columns() / kBlock);
    const F top = broadcast(top_score(scores, task.columns()));
    double sum = 0.0;
    for (std::size_t t = 0; t < task.columns(); t += kBlock) {
        std::uint8_t zero = 0;
        for (std::size_t i = 0; i < kBlock; i += kLanes) store(scores + t + i, exp_lanes(load<F>(scores + t + i) - top));
        for (std::size_t i = 0; i < kBlock; ++i) zero = static_cast<std::uint8_t>(zero + (scores[t + i] == 0.0));
        zeros[t / kBlock] = zero;
        for (std::size_t i = 0; i < kBlock && zero < kBlock; ++i) sum += scores[t + i];
    }
    return sum;
}

void attend(const Attend& job, std::size_t kv_head, std::size_t first, std::size_t last, double* scratch) {
    AttendTask task{job, kv_head, first, last - first, scratch, nullptr, nullptr, nullptr};
    double* const keys = task.queries + job.query_doubles();
    task.keys = reinterpret_cast<float*>(keys);
    task.scores = keys + kPanelColumns / 2 * job.head_dim;
    task.zeros = reinterpret_cast<std::uint8_t*>(task.scores + job.chunk() * task.columns());
    score_all(task);
    double sums[kQueryChunk];
    for (std::size_t q = 0; q < task.count; ++q) sums[q] = soften(task, q);
    for (std::size_t q = 0; q < task.count; q += kValueQueries) {
        const std::size_t count = task.count - q < kValueQueries ? task.count - q : kValueQueries;
        Values values{job, kv_head, task.scores + q * task.columns(), task.zeros + q * (task.columns() / kBlock), sums + q, {}};
        for (std::size_t i = 0; i < count; ++i) values.out[i] = job.out + task.head_offset(q + i);
        sum_values(values, count);
    }
}

}  // namespace
}  // namespace sim
