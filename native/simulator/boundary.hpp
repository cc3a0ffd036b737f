// What leaves the C ABI when C++ throws behind it: a code and one line, never an exception.
#pragma once

#include <cstdint>
#include <string_view>

#include "axcl_abi.hpp"

namespace sim {

// An error in the type of whichever function returns it: counts and sizes carry codes, names are null.
class Caught {
public:
    explicit constexpr Caught(axcl::Error code) : code_(code) {}

    constexpr operator std::int32_t() const { return code_; }
    constexpr operator std::uint32_t() const { return static_cast<std::uint32_t>(code_); }
    constexpr operator std::uint64_t() const { return static_cast<std::uint64_t>(std::int64_t{code_}); }
    constexpr operator const char*() const { return nullptr; }

private:
    axcl::Error code_;
};

// The sub that errors of the function `call` carry.
axcl::Sub sub_of(std::string_view call);

// Only inside a handler: no memory for bad_alloc, busy for a thread that cannot start, unknown for the rest.
Caught caught(const char* call) noexcept;

}  // namespace sim

// Ends every exported function, which is a function-try-block.
#define SIM_BOUNDARY(name) \
    catch (...) {          \
        return sim::caught(#name); \
    }
