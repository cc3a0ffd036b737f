// Objects that callers hold as opaque pointers: a handle that is not alive is found out instead of followed.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace sim {

template <class T>
class Handles {
public:
    void* add(std::shared_ptr<T> object) {
        const std::lock_guard lock(mutex_);
        void* handle = object.get();
        objects_.emplace(handle, std::move(object));
        return handle;
    }
    std::shared_ptr<T> find(void* handle) const {
        const std::lock_guard lock(mutex_);
        const auto found = objects_.find(handle);
        return found == objects_.end() ? nullptr : found->second;
    }
    std::shared_ptr<T> remove(void* handle) {
        const std::lock_guard lock(mutex_);
        const auto node = objects_.extract(handle);
        return node.empty() ? nullptr : node.mapped();
    }
    std::vector<std::shared_ptr<T>> all() const {
        const std::lock_guard lock(mutex_);
        std::vector<std::shared_ptr<T>> out;
        for (const auto& [handle, object] : objects_) out.push_back(object);
        return out;
    }
    // All at once, as `remove` takes one: every object has exactly one taker.
    std::unordered_map<void*, std::shared_ptr<T>> take_all() {
        const std::lock_guard lock(mutex_);
        return std::exchange(objects_, {});
    }

private:
    mutable std::mutex mutex_;
    std::unordered_map<void*, std::shared_ptr<T>> objects_;
};

}  // namespace sim
