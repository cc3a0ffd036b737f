#include "stream.hpp"

#include <chrono>
#include <memory>
#include <utility>

#include "boundary.hpp"

namespace sim {
namespace {

axcl::Error run(const StreamQueue::Task& task) noexcept try {
    return task();
} SIM_BOUNDARY(axclrtSynchronizeStream)

}  // namespace

void StreamQueue::submit(Task task) {
    {
        const std::lock_guard lock(mutex_);
        tasks_.push_back(std::move(task));
    }
    changed_.notify_all();
}

void StreamQueue::work() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [&] { return ending_ || !tasks_.empty(); });
        if (tasks_.empty()) return;
        const Task task = std::move(tasks_.front());
        tasks_.pop_front();
        busy_ = true;
        lock.unlock();
        const axcl::Error error = run(task);
        lock.lock();
        busy_ = false;
        if (first_error_ == axcl::kSuccess) first_error_ = error;
        changed_.notify_all();
    }
}

std::optional<axcl::Error> StreamQueue::wait(std::int32_t milliseconds) {
    std::unique_lock lock(mutex_);
    const auto idle = [&] { return tasks_.empty() && !busy_; };
    if (milliseconds < 0) {
        changed_.wait(lock, idle);
    } else if (!changed_.wait_for(lock, std::chrono::milliseconds(milliseconds), idle)) {
        return std::nullopt;
    }
    return std::exchange(first_error_, axcl::kSuccess);
}

void StreamQueue::finish(bool drop) {
    std::deque<Task> dropped;
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
        if (drop) dropped.swap(tasks_);
    }
    // An event whose record is dropped here counts as reached: its promise is broken, which ends every wait.
    dropped.clear();
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
}

void EventPoint::record(StreamQueue& stream) {
    auto promise = std::make_shared<std::promise<void>>();
    {
        const std::lock_guard lock(mutex_);
        reached_ = promise->get_future().share();
    }
    stream.submit([promise] {
        promise->set_value();
        return axcl::kSuccess;
    });
}

void EventPoint::wait(StreamQueue& stream, std::int32_t milliseconds) const {
    std::shared_future<void> reached;
    {
        const std::lock_guard lock(mutex_);
        reached = reached_;
    }
    if (!reached.valid()) return;
    stream.submit([reached, milliseconds] {
        if (milliseconds < 0) {
            reached.wait();
            return axcl::kSuccess;
        }
        const auto status = reached.wait_for(std::chrono::milliseconds(milliseconds));
        return status == std::future_status::ready ? axcl::kSuccess : axcl::make_error(axcl::Sub::stream, axcl::id::kTimeout);
    });
}

}  // namespace sim
