// A stream: a queue whose tasks run in order on a thread of its own. An event: a point in a stream's queue.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <thread>

#include "axcl_abi.hpp"

namespace sim {

class StreamQueue {
public:
    using Task = std::function<axcl::Error()>;

    StreamQueue() : thread_([this] { work(); }) {}
    ~StreamQueue() { finish(true); }
    StreamQueue(const StreamQueue&) = delete;
    StreamQueue& operator=(const StreamQueue&) = delete;

    void submit(Task task);
    // Waits for all that was submitted; nothing if that takes longer than `milliseconds` (negative: forever).
    // Otherwise the first error since the last wait.
    std::optional<axcl::Error> wait(std::int32_t milliseconds);
    // Ends the thread, after the queue is empty or (`drop`) after the running task.
    void finish(bool drop);

private:
    void work();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Task> tasks_;
    bool busy_ = false, ending_ = false;
    axcl::Error first_error_ = axcl::kSuccess;
    std::thread thread_;
};

class EventPoint {
public:
    void record(StreamQueue& stream);
    // Makes `stream` wait for the last record, at most `milliseconds` (negative: forever). Nothing if never recorded.
    void wait(StreamQueue& stream, std::int32_t milliseconds) const;

private:
    mutable std::mutex mutex_;
    std::shared_future<void> reached_;
};

}  // namespace sim
