#include "set_config.hpp"

#include <algorithm>
#include <cstdio>

#include "faults.hpp"
#include "shown.hpp"

namespace runner {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::uint64_t kMaxLayers = 1024, kMaxDimension = std::uint64_t{1} << 28U;
constexpr std::uint64_t kElement = 2;  // bytes of a bf16

// One JSON object of a file, asked for fields by name.
class Fields {
  public:
    explicit Fields(const fs::path& file) : file_(file.string()) {
        object_ = read_json(file);
        if (!object_.is_object()) throw Fault(file_ + ": is not a JSON object");
    }

    const json& at(const std::string& name) const {
        const auto found = object_.find(name);
        if (found == object_.end()) throw Fault(file_ + ": " + name + ": is missing");
        return *found;
    }

    bool has(const std::string& name) const { return object_.contains(name) && !object_.at(name).is_null(); }

    std::string text(const std::string& name) const {
        const json& value = at(name);
        if (!value.is_string() || value.get<std::string>().empty()) wrong(name, "a file name", value);
        return value.get<std::string>();
    }

    std::uint64_t count(const std::string& name, std::uint64_t limit) const {
        const json& value = at(name);
        const bool whole = value.is_number_integer() && value.get<std::int64_t>() > 0;
        if (!whole || value.get<std::uint64_t>() > limit) wrong(name, "1 to " + std::to_string(limit), value);
        return value.get<std::uint64_t>();
    }

    double number(const std::string& name, double absent) const {
        if (!has(name)) return absent;
        const json& value = at(name);
        if (!value.is_number() || !(value.get<double>() >= 0)) wrong(name, "a number from 0", value);
        return value.get<double>();
    }

    bool flag(const std::string& name) const {
        if (!has(name)) return false;
        if (!at(name).is_boolean()) wrong(name, "true or false", at(name));
        return at(name).get<bool>();
    }

    [[noreturn]] void wrong(const std::string& name, const std::string& expected, const json& found) const {
        throw Fault(file_ + ": " + name + ": expected " + expected + ", found " + shown(found));
    }

    const std::string& file() const { return file_; }

  private:
    std::string file_;
    json object_;
};

// A file of the set: a relative name without "..", and no link that leads out of the directory.
fs::path inside(const fs::path& directory, const fs::path& name) {
    const fs::path file = directory / name;
    if (name.is_absolute() || std::ranges::find(name, "..") != name.end()) {
        throw Fault(file.string() + ": expected a file inside " + directory.string() + ", found " + name.string());
    }
    const fs::path root = fs::canonical(directory), real = fs::weakly_canonical(file);
    if (std::ranges::mismatch(root, real).in1 != root.end()) {
        throw Fault(file.string() + ": expected a file inside " + directory.string() + ", found a link to " +
                    real.string());
    }
    return file;
}

fs::path existing(const fs::path& directory, const fs::path& name) {
    const fs::path file = inside(directory, name);
    std::error_code error;
    if (!fs::is_regular_file(file, error)) throw Fault(file.string() + ": is missing");
    return file;
}

std::vector<fs::path> layer_files(const Fields& fields, const fs::path& directory) {
    const std::string pattern = fields.text("template_filename_axmodel");
    const std::size_t place = pattern.find("%d");
    if (place == std::string::npos || pattern.find('%', place + 1) != std::string::npos) {
        fields.wrong("template_filename_axmodel", "a name with one %d", pattern);
    }
    std::vector<fs::path> files;
    const std::uint64_t layers = fields.count("axmodel_num", kMaxLayers);
    for (std::uint64_t l = 0; l < layers; ++l) {
        std::string name = pattern;
        files.push_back(existing(directory, name.replace(place, 2, std::to_string(l))));
    }
    return files;
}

std::vector<std::uint64_t> windows(const Fields& fields, std::size_t layers) {
    std::vector<std::uint64_t> list(layers, kWholeContext);
    if (!fields.has("layer_types")) return list;
    const json& types = fields.at("layer_types");
    if (!types.is_array() || types.size() != layers) {
        fields.wrong("layer_types", "a list of " + std::to_string(layers) + " (axmodel_num)", types);
    }
    for (std::size_t l = 0; l < layers; ++l) {
        if (types[l] == "full_attention") continue;
        if (types[l] != "sliding_attention") {
            fields.wrong("layer_types", "full_attention or sliding_attention", types[l]);
        }
        list[l] = fields.count("sliding_window", kMaxDimension);
    }
    return list;
}

void add_eos(const Fields& fields, const json& value, SetConfig& config) {
    const bool whole = value.is_number_integer() && value.get<std::int64_t>() >= 0;
    if (!whole || value.get<std::uint64_t>() >= config.vocabulary.tokens()) {
        fields.wrong("eos_token_id", "token ids below " + std::to_string(config.vocabulary.tokens()), value);
    }
    config.eos.push_back(value.get<std::int32_t>());
}

void read_eos(const Fields& fields, SetConfig& config) {
    if (!fields.has("eos_token_id")) return;
    const json& value = fields.at("eos_token_id");
    if (!value.is_array()) return add_eos(fields, value, config);
    for (const json& id : value) add_eos(fields, id, config);
}

void check_embedding(const SetConfig& config) {
    const std::uint64_t expected = config.vocabulary.tokens() * config.hidden * kElement;
    const std::uint64_t found = fs::file_size(config.embedding);
    if (found == expected) return;
    throw Fault(config.embedding.string() + ": size: expected " + std::to_string(expected) + " bytes (" +
                std::to_string(config.vocabulary.tokens()) + " x " + std::to_string(config.hidden) + " bf16), found " +
                std::to_string(found));
}

// The vendor's rules: both sampling flags off is greedy, top-p wins over top-k.
Sampling read_sampling(const Fields& fields) {
    Sampling sampling;
    if (fields.flag("enable_repetition_penalty")) {
        std::fprintf(stderr, "%s: enable_repetition_penalty: is not applied\n", fields.file().c_str());
    }
    const bool top_p = fields.flag("enable_top_p_sampling"), top_k = fields.flag("enable_top_k_sampling");
    if (!top_p && !top_k) return sampling;
    sampling.temperature = fields.flag("enable_temperature") ? fields.number("temperature", 1) : 1;
    if (top_p) sampling.top_p = fields.number("top_p", 1);
    if (sampling.top_p <= 0 || sampling.top_p > 1) fields.wrong("top_p", "above 0 and at most 1", fields.at("top_p"));
    if (!top_p) sampling.top_k = fields.count("top_k", kMaxDimension);
    return sampling;
}

}  // namespace

SetConfig read_set_config(const fs::path& directory) {
    if (!fs::is_directory(directory)) throw Fault(directory.string() + ": is not a directory");
    const Fields fields(inside(directory, "config.json"));
    SetConfig config;
    config.layers = layer_files(fields, directory);
    config.windows = windows(fields, config.layers.size());
    config.post = existing(directory, fields.text("filename_post_axmodel"));
    config.embedding = existing(directory, fields.text("filename_tokens_embed"));
    config.vocabulary = Vocabulary(fields.count("tokens_embed_num", kMaxDimension));
    config.hidden = fields.count("tokens_embed_size", kMaxDimension);
    read_eos(fields, config);
    check_embedding(config);
    if (fields.has("filename_vocab_keep")) {
        const fs::path kept = existing(directory, fields.text("filename_vocab_keep"));
        config.vocabulary = read_vocabulary(config.vocabulary.tokens(), kept);
    }
    const fs::path post_config =
        inside(directory, fields.has("post_config_path") ? fields.text("post_config_path") : "post_config.json");
    if (fs::exists(post_config)) config.sampling = read_sampling(Fields(post_config));
    return config;
}

}  // namespace runner
