// What an instruction set has to offer: the operations of docs/numerics.md on packed data, over a range of work.
// Every table gives the same bits; the ranges of one operation may run on different threads in any order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace sim {

inline constexpr std::size_t kRun = 128;         // elements of one run of a dot product
inline constexpr std::size_t kPanelColumns = 32; // rows of a weight panel, cache rows of an attention panel
inline constexpr std::size_t kQueryChunk = 48;   // query vectors of one attention task

enum class Weights { bf16, fp32, int8 };

// Tokens [tokens, cols] as the matrices read them, in the caller's memory, tile by tile: doubles, tokens of a tile side by
// side, and for int8 the digits of kernels/integers.hpp.
inline constexpr std::size_t kMostDigits = 3;  // of 16 bits

struct Digits {
    double* units;          // of a run of a token: what its digits count
    std::uint32_t* words;   // two digits of neighbouring columns
    std::uint8_t* counts;   // of a run: digits, 0 where it is added in order
};

struct Tokens {
    double* x;
    std::size_t tokens, cols;

    std::size_t runs() const { return (cols + kRun - 1) / kRun; }
    std::size_t token_words() const { return (cols + 1) / 2 * kMostDigits; }
    // Of the tile that begins with token `first`.
    Digits digits(std::size_t first) const {
        double* const units = x + tokens * cols;
        auto* const words = reinterpret_cast<std::uint32_t*>(units + tokens * runs());
        auto* const counts = reinterpret_cast<std::uint8_t*>(words + tokens * token_words());
        return {units + first * runs(), words + first * token_words(), counts + first * runs()};
    }
    // Doubles that `x` points to.
    std::size_t doubles(Weights weights) const {
        if (weights != Weights::int8) return tokens * cols;
        return tokens * (cols + runs()) + (tokens * (token_words() * 4 + runs()) + 7) / 8;
    }
};

// out[t][r] = dot(x[t], w[r]) + bias[r]
struct Matmul {
    const void* panels;
    Weights weights;
    const float* scales;  // of int8: panels of 32 rows, group by group
    std::size_t group;    // columns of a scale, a multiple of kRun
    std::size_t rows;
    Tokens x;
    const float* bias;  // or null
    float* out;
};

// Query vectors of one kv head are numbered token * (heads / kv_heads) + head inside the group.
struct Attend {
    const float *q, *k, *v;                   // [m, heads * d], [m, kv_heads * d] twice
    const std::uint16_t *k_cache, *v_cache;   // bf16 [history, kv_heads * d]
    const std::uint16_t* mask;                // bf16 [m, history + m]
    std::size_t m, history, heads, kv_heads, head_dim;
    float scale;
    float* out;  // [m, heads * d]

    std::size_t group() const { return heads / kv_heads; }
    std::size_t queries() const { return m * group(); }
    std::size_t padded_history() const { return (history + kPanelColumns - 1) / kPanelColumns * kPanelColumns; }
    std::size_t padded_columns() const {
        return padded_history() + (m + kPanelColumns - 1) / kPanelColumns * kPanelColumns;
    }
    // Query vectors of one task, at most.
    std::size_t chunk() const { return queries() < kQueryChunk ? queries() : kQueryChunk; }
    std::size_t chunks() const { return (queries() + kQueryChunk - 1) / kQueryChunk; }
    std::size_t query_doubles() const { return (chunk() * head_dim + 7) / 8 * 8; }
    // Doubles of scratch that one task needs: queries, one panel of keys (float32), scores, counts of zeros (bytes).
    std::size_t scratch() const {
        const std::size_t room = chunk() * (padded_columns() + padded_columns() / 128 + 1);
        return (query_doubles() + kPanelColumns / 2 * head_dim + room + 7) / 8 * 8;
    }
};

struct Norm {
    const float* src;
    float* dst;
    const float* weight;
    float eps;
    std::size_t n, width;
};

struct Rope {
    float* x;
    const std::uint32_t* indices;
    const float *cosine, *sine;  // [positions, head_dim / 2]
    std::size_t positions, head_dim, width;
};

enum class Activation : std::uint32_t { silu = 1, gelu_tanh = 2 };  // as in the microcode

struct KernelTable {
    const char* name;
    std::size_t tile_tokens;
    // Rounds tokens [first, last) of `src` [tokens, cols] to bf16 and fills `x`; `first` begins a tile, `last` ends one.
    void (*pack_tokens)(Weights weights, const float* src, const Tokens& x, std::size_t first_token, std::size_t last_token);
    void (*matmul)(const Matmul& job, std::size_t first_panel, std::size_t last_panel);
    // Query vectors [first, last) of one kv head, at most kQueryChunk of them. `scratch` is 64-byte aligned.
    void (*attend)(const Attend& job, std::size_t kv_head, std::size_t first, std::size_t last, double* scratch);
    void (*norm)(const Norm& job, std::size_t first_token, std::size_t last_token);
    void (*rope)(const Rope& job, std::size_t first_token, std::size_t last_token);
    void (*glu)(Activation activation, const float* gate, const float* up, float* dst, std::size_t count);
};

const KernelTable& generic_kernels();
#if defined(__x86_64__)
const KernelTable& avx2_kernels();
const KernelTable& avx512_kernels();
#elif defined(__aarch64__)
const KernelTable& neon_kernels();
#endif

// The tables that this CPU can run, best first.
std::vector<const KernelTable*> available_kernels();
// The table of this name; the best for an empty name; null for one that is unknown or that this CPU cannot run.
const KernelTable* find_kernels(std::string_view name);

}  // namespace sim
