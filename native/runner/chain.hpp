// The loaded set: embedding -> layers -> post, with the KV caches in device memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine.hpp"
#include "ladder.hpp"
#include "set_config.hpp"
#include "shape.hpp"

namespace runner {

// The embedding file, read row by row.
class Embedding {
  public:
    Embedding(const std::filesystem::path& file, std::uint64_t row_bytes);
    ~Embedding();
    Embedding(const Embedding&) = delete;
    Embedding& operator=(const Embedding&) = delete;

    void read(std::int32_t token, std::byte* row) const;

  private:
    std::filesystem::path file_;
    std::uint64_t row_bytes_;
    int fd_;
};

class Chain {
  public:
    // Loads every engine, allocates every buffer, binds every call: nothing of this happens later.
    // `config` must outlive it. Throws Fault for engines that do not fit together, DeviceFault for a failing call.
    Chain(Resources& resources, const SetConfig& config);

    const Vocabulary& vocabulary() const { return *vocabulary_; }
    std::uint64_t context() const { return shape_.context; }
    bool full() const { return position_ >= shape_.context; }

    // Position 0 and caches of zeros. Stale rows may hold NaN, and NaN shines through a mask.
    void reset();

    // Computes the next tokens, as many as one call of the engines takes, and returns how many. Not when full().
    std::uint32_t step(std::span<const std::int32_t> tokens, bool prefill);

    // The bf16 logits after row `row` of the last step, one for each row of the vocabulary; valid until the next call.
    std::span<const std::uint16_t> logits(std::uint32_t row);

  private:
    struct Layer {
        Engine engine;
        void* k_cache = nullptr;
        void* v_cache = nullptr;
        std::size_t mask = 0;         // of masks_
        std::vector<axcl::Io> calls;  // one for each shape group
    };
    // Layers that see equally far share a mask: one for most models, two for those with sliding windows.
    struct Mask {
        std::uint64_t window;
        void* memory;
    };
    struct Buffers {
        void *hidden[2], *k_out, *v_out, *indices, *post_row, *logits;
    };
    struct Staging {
        std::byte* hidden;
        std::uint32_t* indices;
        std::uint16_t *mask, *logits;
    };

    void allocate();
    std::size_t mask_for(std::uint64_t window);
    void bind_layer(std::size_t l);
    void bind_post();
    void upload(const Chunk& chunk, std::span<const std::int32_t> tokens);
    void upload_masks(const Chunk& chunk);
    void run_layer(std::size_t l, const Chunk& chunk);
    void copy(void* to, const void* from, std::uint64_t bytes, axcl::MemcpyKind kind) const;
    void* last_hidden() const { return buffers_.hidden[layers_.size() % 2]; }

    const Library* library_;
    Embedding embedding_;
    const Vocabulary* vocabulary_;
    std::uint64_t row_bytes_;
    Resources* resources_;
    Engine post_;  // before the layers: heads of another compiler must be loaded first, and others may be
    std::vector<Layer> layers_;
    LayerShape shape_;
    std::vector<Mask> masks_;
    Buffers buffers_{};
    Staging staging_{};
    axcl::Io post_first_ = nullptr;   // reads row 0 of the last layer's output in place
    axcl::Io post_copied_ = nullptr;  // reads a row that was copied to a base address of its own
    std::uint64_t position_ = 0;
    std::uint32_t last_tokens_ = 0;
};

}  // namespace runner
