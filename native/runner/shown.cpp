#include "shown.hpp"

#include <cmath>
#include <cstdint>
#include <fstream>
#include <iterator>

#include "faults.hpp"

namespace runner {

using nlohmann::json;

json parse_json(const std::string& text) {
    constexpr int most = 32;
    const auto shallow = [](int depth, json::parse_event_t, const json&) {
        if (depth > most) throw Fault("JSON nests deeper than " + std::to_string(most));
        return true;
    };
    return json::parse(text, shallow, false);
}

json read_json(const std::filesystem::path& file) {
    constexpr std::uintmax_t most = std::uintmax_t{1} << 24U;
    std::ifstream stream(file);
    if (!stream || !std::filesystem::is_regular_file(file)) throw Fault(file.string() + ": cannot be read");
    const std::uintmax_t size = std::filesystem::file_size(file);
    if (size > most) {
        throw Fault(file.string() + ": size: expected at most " + std::to_string(most) + " bytes, found " +
                    std::to_string(size));
    }
    try {
        return parse_json({std::istreambuf_iterator<char>(stream), {}});
    } catch (const Fault& fault) {
        throw Fault(file.string() + ": " + fault.what());
    }
}

std::string shown(const json& value) {
    constexpr std::size_t most = 80;
    if (value.is_array()) return "a list";
    if (value.is_object()) return "an object";
    if (value.is_number_float() && !std::isfinite(value.get<double>())) return std::to_string(value.get<double>());
    std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
    if (text.size() > most) text = text.substr(0, most) + "...";
    return text;
}

}  // namespace runner
