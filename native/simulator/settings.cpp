#include "settings.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <thread>

namespace sim {
namespace {

std::string_view environment(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? std::string_view{} : std::string_view{value};
}

template <class T>
bool parse_number(std::string_view text, T low, T high, T& out) {
    T value{};
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (status != std::errc{} || end != text.data() + text.size() || value < low || value > high) return false;
    out = value;
    return true;
}

std::string refusal(const char* name, std::string_view value, const char* expected) {
    return std::string(name) + ": \"" + std::string(value) + "\" (expected " + expected + ")";
}

bool parse_fault(std::string_view fault, Settings& settings) {
    constexpr std::string_view load = "load=";
    if (fault == "wedged") return settings.wedged = true;
    if (!fault.starts_with(load)) return false;
    return parse_number<std::uint64_t>(fault.substr(load.size()), 1, UINT64_MAX, settings.load_fault);
}

bool parse_faults(std::string_view faults, Settings& settings) {
    while (!faults.empty()) {
        const auto comma = faults.find(',');
        if (!parse_fault(faults.substr(0, comma), settings)) return false;
        faults = comma == std::string_view::npos ? std::string_view{} : faults.substr(comma + 1);
    }
    return true;
}

}  // namespace

bool read_settings(Settings& settings, std::string& error) {
    settings = Settings{};
    settings.threads = std::clamp(std::thread::hardware_concurrency(), 1U, 256U);
    if (const auto v = environment("ENGINESET_SIM_THREADS"); !v.empty() && !parse_number(v, 1U, 256U, settings.threads)) {
        error = refusal("ENGINESET_SIM_THREADS", v, "1 to 256");
        return false;
    }
    if (const auto v = environment("ENGINESET_SIM_CARDS"); !v.empty() && !parse_number(v, 0U, 1U, settings.cards)) {
        error = refusal("ENGINESET_SIM_CARDS", v, "0 or 1");
        return false;
    }
    if (const auto v = environment("ENGINESET_SIM_FAULTS"); !parse_faults(v, settings)) {
        error = refusal("ENGINESET_SIM_FAULTS", v, "a list of load=N, wedged");
        return false;
    }
    settings.isa = environment("ENGINESET_SIM_ISA");
    return true;
}

}  // namespace sim
