// Short jobs in quick succession on ThreadPool: every task of every job runs once, and no worker outlives its job.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "pool.hpp"

namespace {

constexpr std::size_t kTasks = 5;

// The job lives on the heap and is wiped after it ran: a worker that still looks at it reads freed memory or counts too much.
bool run_job(sim::ThreadPool& pool, std::size_t turn) {
    auto seen = std::make_unique<std::atomic<std::size_t>[]>(kTasks);
    auto sum = std::make_unique<std::atomic<std::size_t>>(0);
    pool.run(kTasks, [&](std::size_t task, std::size_t worker) {
        seen[task] += 1;
        *sum += worker < pool.size() ? turn : 0;
    });
    bool once = *sum == kTasks * turn;
    for (std::size_t i = 0; i < kTasks; ++i) once = once && seen[i] == 1;
    return once;
}

}  // namespace

int main(int, char** arguments) {
    const std::size_t jobs = std::strtoul(arguments[2], nullptr, 10);
    sim::ThreadPool pool(static_cast<unsigned>(std::strtoul(arguments[1], nullptr, 10)));
    for (std::size_t turn = 1; turn <= jobs; ++turn) {
        if (!run_job(pool, turn)) {
            std::fprintf(stderr, "job %zu did not run each task once\n", turn);
            return 1;
        }
    }
    return 0;
}
