#include "pool.hpp"

#include <thread>

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

// Small stacks: 64 of the usual 8 MiB are what a process with a limited address space does not have.
ThreadPool::ThreadPool(unsigned threads) {
    constexpr std::size_t stack = std::size_t{512} << 10U;
    workers_.reserve(threads);
    const auto start = [](void* self) -> void* {
        auto* pool = static_cast<ThreadPool*>(self);
        pool->work(++pool->started_);
        return nullptr;
    };
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0) return;
    pthread_attr_setstacksize(&attributes, stack);
    pthread_t worker{};
    while (workers_.size() + 1 < threads && pthread_create(&worker, &attributes, start, this) == 0) {
        workers_.push_back(worker);
    }
    pthread_attr_destroy(&attributes);
}

ThreadPool::~ThreadPool() {
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
        turn_ += 1;
    }
    wake_.notify_all();
    for (const pthread_t worker : workers_) pthread_join(worker, nullptr);
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
