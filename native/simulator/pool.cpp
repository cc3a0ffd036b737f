#include "pool.hpp"

namespace sim {
namespace {

// Operations follow each other within microseconds: look for the next one this often before sleeping.
constexpr int kSpins = 4000;

void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    std::this_thread::yield();
#endif
}

}  // namespace

ThreadPool::ThreadPool(unsigned threads) {
    for (unsigned i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
        turn_ += 1;
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::drain(const Job& job, std::size_t worker) {
    for (std::size_t i = next_++; i < job.count; i = next_++) (*job.task)(i, worker);
}

// Waits for a new job and takes part in it, unless it is over already or the pool ends.
ThreadPool::Job ThreadPool::join_job(std::uint64_t& seen) {
    for (int i = 0; i < kSpins && turn_ == seen; ++i) relax();
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return turn_ != seen; });
    seen = turn_;
    if (open_.task != nullptr) active_ += 1;
    return open_;
}

void ThreadPool::work(std::size_t worker) {
    std::uint64_t seen = 0;
    for (;;) {
        const Job job = join_job(seen);
        if (job.task != nullptr) {
            drain(job, worker);
            active_ -= 1;
        } else if (const std::lock_guard lock(mutex_); ending_) {
            return;
        }
    }
}

void ThreadPool::run(std::size_t count, const Task& task) {
    if (workers_.empty() || count == 1) {
        for (std::size_t i = 0; i < count; ++i) task(i, 0);
        return;
    }
    const Job job{&task, count};
    {
        const std::lock_guard lock(mutex_);
        open_ = job;
        next_ = 0;
        turn_ += 1;
    }
    wake_.notify_all();
    drain(job, 0);
    {
        const std::lock_guard lock(mutex_);
        open_ = {};
    }
    while (active_ != 0) relax();
}

}  // namespace sim
