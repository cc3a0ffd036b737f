// JSON of strangers: parsed to a bounded depth and size, and shown in a fault in a few characters.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace runner {

// A discarded value for a text that is not JSON. Throws Fault for one that nests deeper than 32: `dump` recurses.
nlohmann::json parse_json(const std::string& text);

// The same of a file, of at most 16 MiB. Throws Fault, which begins with its name.
nlohmann::json read_json(const std::filesystem::path& file);

// What a fault says was found: a list or an object by its kind, anything else as JSON, cut to 80 characters.
std::string shown(const nlohmann::json& value);

}  // namespace runner
