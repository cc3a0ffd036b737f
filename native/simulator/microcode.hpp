// The reference engines' microcode as docs/microcode.md describes it, parsed and checked.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "container.hpp"

namespace sim {

inline constexpr std::uint32_t kNoTensor = 0xFFFFFFFF;

enum class Kind : std::uint32_t { layer = 1, post = 2 };
enum class Codec : std::uint32_t { bf16 = 1, fp32 = 2, s8_reciprocal = 3, s4_bf16 = 4, s4_fp16 = 5 };
inline constexpr bool is_float(Codec codec) { return codec == Codec::bf16 || codec == Codec::fp32; }
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

// What stands in the blob for a tensor: the plane of the lowest bits, the second plane, the scale entries.
enum Part : std::size_t { low_plane, high_plane, entries, kParts };

struct TensorCode {
    Codec codec = Codec::bf16;
    std::uint32_t rows = 0, cols = 0, group = 0;  // group: columns of a scale entry, 0 for floats
    std::array<std::vector<Piece>, kParts> pieces;

    // Bits of one element of a part, 0 for a part that the codec does not have.
    std::uint32_t part_bits(std::size_t part) const;
    std::uint32_t part_cols(std::size_t part) const { return part == entries ? (cols - 1) / group + 1 : cols; }
    // Bits that the whole tensor takes.
    std::uint64_t stored_bits() const;

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

// Throws EngineFault for anything but a whole, self-consistent version 2 microcode.
Microcode parse_microcode(Bytes bytes);

// Throws EngineFault if an operation does not fit its registers, its tensors or the group's inputs and outputs.
void check_operations(const Microcode& code, const ContainerGroup& group);

}  // namespace sim
