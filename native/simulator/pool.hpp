// A persistent pool: one caller at a time spreads numbered tasks over all threads and takes part itself.
#pragma once

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

namespace sim {

class ThreadPool {
public:
    using Task = std::function<void(std::size_t task, std::size_t worker)>;

    // With fewer threads than asked for where the system gives no more.
    explicit ThreadPool(unsigned threads);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    std::size_t size() const { return workers_.size() + 1; }
    // Runs task(i, worker) for every i in [0, count); worker < size() is unique among tasks that run at once.
    void run(std::size_t count, const Task& task);

private:
    struct Job {
        const Task* task = nullptr;  // null between jobs: a worker that wakes too late has nothing to join
        std::size_t count = 0;
    };

    void work(std::size_t worker);
    void drain(const Job& job, std::size_t worker);
    Job join_job(std::uint64_t& seen);

    std::vector<pthread_t> workers_;
    std::mutex mutex_;
    std::condition_variable wake_;
    std::atomic<std::uint64_t> turn_{0};  // counts jobs; a worker sleeps until it moves
    std::atomic<std::size_t> next_{0}, active_{0}, started_{0};
    Job open_;
    bool ending_ = false;
};

}  // namespace sim
