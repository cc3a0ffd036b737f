#pragma once

#include <utility>

#include "library.hpp"

namespace runner {

// Owns one handle of the driver and gives it back through the table's function `Release`.
template <typename Handle, auto Release>
class Owned {
  public:
    Owned(const Library& library, Handle handle) : library_(&library), handle_(handle) {}
    Owned(Owned&& other) noexcept : library_(std::exchange(other.library_, nullptr)), handle_(other.handle_) {}
    Owned& operator=(Owned&& other) noexcept {
        std::swap(library_, other.library_);
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~Owned() {
        if (library_ != nullptr) (library_->*Release)(handle_);
    }

    Handle get() const { return handle_; }

  private:
    const Library* library_;
    Handle handle_;
};

}  // namespace runner
