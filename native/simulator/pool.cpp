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
        job_ += 1;
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::drain(std::size_t worker) {
    for (std::size_t i = next_++; i < count_; i = next_++) (*task_)(i, worker);
}

// Waits for a new job; true if there is still work to share, false if it was over already or the pool ends.
bool ThreadPool::join_job(std::uint64_t& seen) {
    for (int i = 0; i < kSpins && job_ == seen; ++i) relax();
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return job_ != seen; });
    seen = job_;
    if (task_ == nullptr) return false;
    active_ += 1;
    return true;
}

void ThreadPool::work(std::size_t worker) {
    std::uint64_t seen = 0;
    for (;;) {
        const bool joined = join_job(seen);
        if (joined) {
            drain(worker);
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
    {
        const std::lock_guard lock(mutex_);
        count_ = count;
        task_ = &task;
        next_ = 0;
        job_ += 1;
    }
    wake_.notify_all();
    drain(0);
    {
        const std::lock_guard lock(mutex_);
        task_ = nullptr;
    }
    while (active_ != 0) relax();
}

}  // namespace sim
