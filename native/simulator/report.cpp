#include "report.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

namespace sim {
namespace {

constexpr const char* kCallNames[] = {
#define SIM_NAME(result, name, arguments) #name,
    AXCL_FUNCTIONS(SIM_NAME) AXCL_OPTIONAL_FUNCTIONS(SIM_NAME) AXCL_SIMULATOR_FUNCTIONS(SIM_NAME)
#undef SIM_NAME
};
constexpr const char* kBreachNames[] = {
    "unbound",        "size_mismatch",         "beyond_allocation", "interior_pointer", "output_aliases_input",
    "outputs_overlap", "io_two_groups", "position_beyond_table",
};
constexpr const char* kDirectionNames[] = {"host_to_host", "host_to_device", "device_to_host", "device_to_device"};
static_assert(std::size(kCallNames) == static_cast<std::size_t>(Call::count));
static_assert(std::size(kBreachNames) == static_cast<std::size_t>(Breach::count));
static_assert(std::size(kDirectionNames) == static_cast<std::size_t>(Direction::count));

template <class Counters, std::size_t N>
nlohmann::ordered_json named(const Counters& counters, const char* const (&names)[N]) {
    nlohmann::ordered_json out = nlohmann::ordered_json::object();
    for (std::size_t i = 0; i < N; ++i) out[names[i]] = counters[i].load();
    return out;
}

double microseconds(std::uint64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e3; }

}  // namespace

void Report::copied(Direction direction, std::uint64_t bytes) {
    copies_[static_cast<std::size_t>(direction)] += 1;
    bytes_[static_cast<std::size_t>(direction)] += bytes;
}

void Report::executed(double modelled_microseconds, double measured_microseconds) {
    executes_ += 1;
    modelled_nanoseconds_ += static_cast<std::uint64_t>(std::llround(modelled_microseconds * 1e3));
    measured_nanoseconds_ += static_cast<std::uint64_t>(std::llround(measured_microseconds * 1e3));
}

std::string Report::json(std::string_view isa, std::size_t threads, const MemoryUse& memory) const {
    nlohmann::ordered_json out;
    out["isa"] = isa;
    out["threads"] = threads;
    out["executes"] = executes_.load();
    out["modelled_us"] = microseconds(modelled_nanoseconds_);
    out["measured_us"] = microseconds(measured_nanoseconds_);
    out["memory"] = {{"used", memory.used}, {"peak", memory.peak}, {"allocations", memory.allocations}};
    out["copies"] = named(copies_, kDirectionNames);
    out["copied_bytes"] = named(bytes_, kDirectionNames);
    out["breaches"] = named(breaches_, kBreachNames);
    out["calls"] = named(calls_, kCallNames);
    return out.dump();
}

}  // namespace sim
