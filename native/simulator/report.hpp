// What the driver was asked to do: calls per function, bytes moved, breaches of the binding contract, modelled time.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "axcl_abi.hpp"
#include "memory.hpp"

namespace sim {

enum class Call : std::size_t {
#define SIM_NAME(result, name, arguments) name,
    AXCL_FUNCTIONS(SIM_NAME) AXCL_OPTIONAL_FUNCTIONS(SIM_NAME) AXCL_SIMULATOR_FUNCTIONS(SIM_NAME)
#undef SIM_NAME
        count
};

// Each of these gives wrong numbers with return code 0 on the card.
enum class Breach : std::size_t {
    unbound,
    size_mismatch,
    beyond_allocation,
    interior_pointer,
    output_aliases_input,
    outputs_overlap,
    io_two_groups,
    position_beyond_table,
    count,
};

enum class Direction : std::size_t { host_to_host, host_to_device, device_to_host, device_to_device, count };

class Report {
public:
    void count(Call call) { calls_[static_cast<std::size_t>(call)] += 1; }
    void count(Breach breach, std::uint64_t times = 1) { breaches_[static_cast<std::size_t>(breach)] += times; }
    void copied(Direction direction, std::uint64_t bytes);
    void executed(double modelled_microseconds, double measured_microseconds);

    // The JSON text of docs/simulator.md.
    std::string json(std::string_view isa, std::size_t threads, const MemoryUse& memory) const;

private:
    template <class E>
    using Counters = std::array<std::atomic<std::uint64_t>, static_cast<std::size_t>(E::count)>;

    Counters<Call> calls_{};
    Counters<Breach> breaches_{};
    Counters<Direction> copies_{}, bytes_{};
    std::atomic<std::uint64_t> executes_{0}, modelled_nanoseconds_{0}, measured_nanoseconds_{0};
};

}  // namespace sim
