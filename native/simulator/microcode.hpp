// The reference engines' microcode as docs/microcode.md describes it, parsed and checked.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "container.hpp"

namespace sim {

inline constexpr std::uint32_t kNoTensor = 0xFFFFFFFF;

enum class Kind : std::uint32_t { layer = 1, post = 2 };
enum class Codec : std::uint32_t { bf16 = 1, fp32 = 2 };
inline constexpr std::uint64_t element_bytes(Codec codec) { return codec == Codec::bf16 ? 2 : 4; }
enum class Opcode : std::uint32_t {
    load = 1,
    store = 2,
    norm = 3,
    matmul = 4,
    rope = 5,
    attend = 6,
    glu = 7,
    add = 8,
    round = 9,
};

struct Digit {
    std::int64_t stride_bits = 0;
    std::uint32_t size = 0;

    bool operator==(const Digit&) const = default;
};

struct Piece {
    std::uint32_t first_row = 0, rows = 0;
    std::uint64_t base_bits = 0;
    std::vector<Digit> row_digits, col_digits;  // fastest first

    bool operator==(const Piece&) const = default;
};

struct TensorCode {
    Codec codec = Codec::bf16;
    std::uint32_t rows = 0, cols = 0;
    std::vector<Piece> pieces;

    bool operator==(const TensorCode&) const = default;
};

struct Operation {
    Opcode opcode{};
    std::array<std::uint32_t, 11> args{};
};

struct Microcode {
    Kind kind{};
    std::uint32_t layer = 0, m = 0, history = 0;
    std::vector<std::uint32_t> registers;  // widths
    std::vector<TensorCode> tensors;
    std::vector<Operation> operations;
};

// Throws EngineFault for anything but a whole, self-consistent version 1 microcode.
Microcode parse_microcode(Bytes bytes);

// Throws EngineFault if an operation does not fit its registers, its tensors or the group's inputs and outputs.
void check_operations(const Microcode& code, const ContainerGroup& group);

}  // namespace sim
