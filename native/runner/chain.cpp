#include "chain.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <string>

#include "faults.hpp"
#include "signals.hpp"

namespace runner {
namespace {

constexpr std::uint64_t kElement = 2;  // bytes of a bf16

std::uint64_t largest(const Tensor& tensor) { return std::ranges::max(tensor.bytes); }

std::byte* offset(void* base, std::uint64_t bytes) { return static_cast<std::byte*>(base) + bytes; }

void check_same_shape(const Engine& first, const LayerShape& expected, const Engine& engine, const LayerShape& found) {
    const auto text = [](const LayerShape& s) {
        std::string line = "hidden " + std::to_string(s.hidden) + ", kv " + std::to_string(s.kv_width) +
                           ", cache rows " + std::to_string(s.cache_rows) + ", groups";
        for (const Group& g : s.groups) line += " " + std::to_string(g.tokens) + "@" + std::to_string(g.history);
        return line;
    };
    if (expected == found) return;
    throw Fault(engine.file() + ": differs from " + first.file() + ": expected " + text(expected) + ", found " +
                text(found));
}

void expect_elements(const Engine& engine, const char* tensor, std::uint64_t found, const char* field,
                     std::uint64_t expected) {
    if (found == expected) return;
    throw Fault(engine.file() + ": " + tensor + ": expected " + std::to_string(expected) + " elements (" + field +
                " of config.json), found " + std::to_string(found));
}

void check_post(const Engine& post, const SetConfig& config) {
    for (const Tensor* tensor : {&post.input("input"), &post.output("output")}) {
        if (tensor->type == axcl::DataType::bf16) continue;
        throw Fault(post.file() + ": " + tensor->name + ": data type: expected 14 (bf16), found " +
                    std::to_string(static_cast<int>(tensor->type)));
    }
    expect_elements(post, "input", post.input("input").bytes[0] / kElement, "tokens_embed_size", config.hidden);
    const char* field = config.vocabulary.trimmed() ? "ids of filename_vocab_keep" : "tokens_embed_num";
    expect_elements(post, "output", post.output("output").bytes[0] / kElement, field, config.vocabulary.rows());
}

}  // namespace

Embedding::Embedding(const std::filesystem::path& file, std::uint64_t row_bytes)
    : file_(file), row_bytes_(row_bytes), fd_(open(file.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ < 0) throw Fault(file.string() + ": cannot be opened: " + std::strerror(errno));
}

Embedding::~Embedding() { close(fd_); }

void Embedding::read(std::int32_t token, std::byte* row) const {
    const auto start = static_cast<off_t>(static_cast<std::uint64_t>(token) * row_bytes_);
    if (pread(fd_, row, row_bytes_, start) == static_cast<ssize_t>(row_bytes_)) return;
    throw Fault(file_.string() + ": row " + std::to_string(token) + " cannot be read");
}

Chain::Chain(Resources& resources, const SetConfig& config)
    : library_(&resources.library()),
      embedding_(config.embedding, config.hidden * kElement),
      vocabulary_(&config.vocabulary),
      row_bytes_(config.hidden * kElement),
      resources_(&resources),
      post_(resources, config.post) {
    check_post(post_, config);
    for (const auto& file : config.layers) {
        const Engine& engine = layers_.emplace_back(Layer{Engine(resources, file), nullptr, nullptr, 0, {}}).engine;
        const LayerShape shape = read_layer_shape(engine);
        if (layers_.size() == 1) shape_ = shape;
        check_same_shape(layers_[0].engine, shape_, engine, shape);
        expect_elements(engine, "input", shape.hidden, "tokens_embed_size", config.hidden);
    }
    allocate();
    for (std::size_t l = 0; l < layers_.size(); ++l) {
        layers_[l].mask = mask_for(config.windows[l]);
        bind_layer(l);
    }
    bind_post();
    reset();
}

// Buffers that every layer and group shares are as large as the largest group asks; each call binds its own size.
void Chain::allocate() {
    const Engine& layer = layers_[0].engine;
    const auto device = [&](const Tensor& tensor) { return resources_->device_memory(largest(tensor)); };
    const auto host = [&](const Tensor& tensor) { return resources_->host_memory(largest(tensor)); };
    buffers_ = {{device(layer.input("input")), device(layer.output("output"))},
                device(layer.output("K_cache_out")),
                device(layer.output("V_cache_out")),
                device(layer.input("indices")),
                resources_->device_memory(row_bytes_),
                device(post_.output("output"))};
    staging_ = {static_cast<std::byte*>(host(layer.input("input"))),
                static_cast<std::uint32_t*>(host(layer.input("indices"))),
                static_cast<std::uint16_t*>(host(layer.input("mask"))),
                static_cast<std::uint16_t*>(host(post_.output("output")))};
    for (Layer& each : layers_) {
        each.k_cache = device(each.engine.input("K_cache"));
        each.v_cache = device(each.engine.input("V_cache"));
    }
}

// A window that holds the whole context is none.
std::size_t Chain::mask_for(std::uint64_t window) {
    window = std::min(window, shape_.context);
    const auto known = std::ranges::find(masks_, window, &Mask::window);
    if (known != masks_.end()) return static_cast<std::size_t>(known - masks_.begin());
    masks_.push_back({window, resources_->device_memory(largest(layers_[0].engine.input("mask")))});
    return masks_.size() - 1;
}

// Even layers read hidden[0] and write hidden[1], odd ones the other way: no call reads what it writes, none is
// rebound.
void Chain::bind_layer(std::size_t l) {
    Layer& layer = layers_[l];
    const Engine& engine = layer.engine;
    const std::vector<Binding> inputs{{&engine.input("K_cache"), layer.k_cache},
                                      {&engine.input("V_cache"), layer.v_cache},
                                      {&engine.input("indices"), buffers_.indices},
                                      {&engine.input("input"), buffers_.hidden[l % 2]},
                                      {&engine.input("mask"), masks_[layer.mask].memory}};
    const std::vector<Binding> outputs{{&engine.output("K_cache_out"), buffers_.k_out},
                                       {&engine.output("V_cache_out"), buffers_.v_out},
                                       {&engine.output("output"), buffers_.hidden[(l + 1) % 2]}};
    for (std::uint32_t g = 0; g < engine.groups(); ++g) {
        layer.calls.push_back(engine.bind(*resources_, g, inputs, outputs));
    }
}

void Chain::bind_post() {
    const std::vector<Binding> outputs{{&post_.output("output"), buffers_.logits}};
    post_first_ = post_.bind(*resources_, 0, {{&post_.input("input"), last_hidden()}}, outputs);
    post_copied_ = post_.bind(*resources_, 0, {{&post_.input("input"), buffers_.post_row}}, outputs);
}

void Chain::reset() {
    position_ = 0;
    last_tokens_ = 0;
    for (const Layer& layer : layers_) {
        check(library_->axclrtMemset(layer.k_cache, 0, largest(layer.engine.input("K_cache"))), "axclrtMemset");
        check(library_->axclrtMemset(layer.v_cache, 0, largest(layer.engine.input("V_cache"))), "axclrtMemset");
    }
}

std::uint32_t Chain::step(std::span<const std::int32_t> tokens, bool prefill) {
    const Chunk chunk = next_chunk(shape_, position_, tokens.size(), prefill);
    upload(chunk, tokens.first(chunk.tokens));
    for (std::size_t l = 0; l < layers_.size(); ++l) run_layer(l, chunk);
    position_ += chunk.tokens;
    last_tokens_ = chunk.tokens;
    return chunk.tokens;
}

// Indices are the same for all layers of a call; rows of padding are zero and their indices go on.
void Chain::upload(const Chunk& chunk, std::span<const std::int32_t> tokens) {
    const Group& group = *chunk.group;
    std::memset(staging_.hidden, 0, group.tokens * row_bytes_);
    for (std::size_t i = 0; i < tokens.size(); ++i) embedding_.read(tokens[i], staging_.hidden + i * row_bytes_);
    std::iota(staging_.indices, staging_.indices + group.tokens, static_cast<std::uint32_t>(position_));
    copy(buffers_.hidden[0], staging_.hidden, group.tokens * row_bytes_, axcl::MemcpyKind::host_to_device);
    copy(buffers_.indices, staging_.indices, group.tokens * sizeof(std::uint32_t), axcl::MemcpyKind::host_to_device);
    upload_masks(chunk);
}

void Chain::upload_masks(const Chunk& chunk) {
    const Group& group = *chunk.group;
    const std::uint64_t elements = std::uint64_t{group.tokens} * (group.history + group.tokens);
    for (const Mask& mask : masks_) {
        fill_mask(group, position_, chunk.tokens, mask.window, {staging_.mask, elements});
        copy(mask.memory, staging_.mask, elements * kElement, axcl::MemcpyKind::host_to_device);
    }
}

void Chain::run_layer(std::size_t l, const Chunk& chunk) {
    const Layer& layer = layers_[l];
    layer.engine.execute(chunk.group->index, layer.calls[chunk.group->index]);
    const std::uint64_t row = shape_.kv_width * kElement;
    const auto keep = [&](void* cache, const void* rows) {
        copy(offset(cache, position_ * row), rows, chunk.tokens * row, axcl::MemcpyKind::device_to_device);
    };
    keep(layer.k_cache, buffers_.k_out);
    keep(layer.v_cache, buffers_.v_out);
}

std::span<const std::uint16_t> Chain::logits(std::uint32_t row) {
    if (row >= last_tokens_) throw Fault("no hidden state for row " + std::to_string(row));
    if (row > 0) {
        const std::byte* from = offset(last_hidden(), row * row_bytes_);
        copy(buffers_.post_row, from, row_bytes_, axcl::MemcpyKind::device_to_device);
    }
    post_.execute(0, row == 0 ? post_first_ : post_copied_);
    const std::uint64_t rows = vocabulary_->rows();
    copy(staging_.logits, buffers_.logits, rows * kElement, axcl::MemcpyKind::device_to_host);
    return {staging_.logits, rows};
}

void Chain::copy(void* to, const void* from, std::uint64_t bytes, axcl::MemcpyKind kind) const {
    signals::check();
    check(library_->axclrtMemcpy(to, from, bytes, kind), "axclrtMemcpy", std::to_string(bytes) + " bytes");
}

}  // namespace runner
