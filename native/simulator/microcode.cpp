#include "microcode.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "fault.hpp"

namespace sim {
namespace {

constexpr std::size_t kHeader = 64, kTensor = 48, kPiece = 128, kOperation = 48, kDigits = 6;
constexpr std::uint32_t kVersion = 2, kGroupUnit = 128;
constexpr std::uint64_t kMaxTokens = 1U << 16U, kMaxWidth = 1U << 24U, kMaxRegisterElements = 1U << 28U;

class Reader {
public:
    explicit Reader(Bytes bytes) : bytes_(bytes) {}

    template <class T>
    T take() {
        T value{};
        std::memcpy(&value, bytes_.data() + position_, sizeof value);
        position_ += sizeof value;
        return value;
    }
    std::uint32_t u32() { return take<std::uint32_t>(); }
    void skip(std::size_t size) { position_ += size; }
    std::size_t position() const { return position_; }

private:
    Bytes bytes_;
    std::size_t position_ = 0;
};

[[noreturn]] void refuse(const std::string& what, std::uint64_t expected, std::uint64_t found) {
    throw EngineFault("microcode: " + what + " (expected " + std::to_string(expected) + ", found " + std::to_string(found) + ")");
}

struct Counts {
    std::uint32_t registers, tensors, pieces, operations;
};

Counts parse_header(Reader& reader, std::uint64_t size, Microcode& code) {
    char magic[4];
    for (char& c : magic) c = reader.take<char>();
    if (std::memcmp(magic, "RNEU", 4) != 0) throw EngineFault("microcode: not RNEU: a vendor engine, which only the card runs");
    if (const auto version = reader.u32(); version != kVersion) refuse("version", kVersion, version);
    if (const auto declared = reader.u32(); declared != size) refuse("size", size, declared);
    const std::uint32_t kind = reader.u32();
    if (kind != 1 && kind != 2) throw EngineFault("microcode: unknown kind " + std::to_string(kind));
    code.kind = static_cast<Kind>(kind);
    code.layer = reader.u32();
    code.m = reader.u32();
    code.history = reader.u32();
    if (code.m == 0 || code.m > kMaxTokens) refuse("tokens per call, at most", kMaxTokens, code.m);
    const Counts counts{reader.u32(), reader.u32(), reader.u32(), reader.u32()};
    reader.skip(20);
    const std::uint64_t filled = kHeader + 4ULL * counts.registers + std::uint64_t{kTensor} * counts.tensors +
                                 std::uint64_t{kPiece} * counts.pieces + std::uint64_t{kOperation} * counts.operations;
    if (filled != size) refuse("size that its counts fill", size, filled);
    return counts;
}

void parse_registers(Reader& reader, std::uint32_t count, Microcode& code) {
    std::uint64_t total = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
        const std::uint32_t width = reader.u32();
        if (width == 0 || width > kMaxWidth) refuse("width of register " + std::to_string(i) + ", at most", kMaxWidth, width);
        total += std::uint64_t{width} * code.m;
        code.registers.push_back(width);
    }
    if (total > kMaxRegisterElements) refuse("elements of all registers, at most", kMaxRegisterElements, total);
}

struct PieceRange {
    std::uint32_t first, count;
};
using PieceRanges = std::array<PieceRange, kParts>;

PieceRanges parse_tensor(Reader& reader, std::size_t index, TensorCode& tensor) {
    const std::string where = "tensor " + std::to_string(index);
    const std::uint32_t codec = reader.u32();
    if (codec < 1 || codec > 5) throw EngineFault("microcode: " + where + ": unknown codec " + std::to_string(codec));
    tensor.codec = static_cast<Codec>(codec);
    tensor.rows = reader.u32();
    tensor.cols = reader.u32();
    tensor.group = reader.u32();
    PieceRanges ranges{};
    for (PieceRange& range : ranges) range = {reader.u32(), reader.u32()};
    reader.skip(8);
    if (tensor.rows == 0 || tensor.cols == 0) throw EngineFault("microcode: " + where + ": is empty");
    if (is_float(tensor.codec)) {
        if (tensor.group != 0) refuse(where + ": columns of a scale entry", 0, tensor.group);
    } else if (tensor.group == 0 || tensor.group % kGroupUnit != 0) {
        refuse(where + ": columns of a scale entry, a multiple", kGroupUnit, tensor.group);
    }
    return ranges;
}

Piece parse_piece(Reader& reader) {
    Piece piece;
    const std::size_t start = reader.position();
    piece.first_row = reader.u32();
    piece.rows = reader.u32();
    piece.base_bits = reader.take<std::uint64_t>();
    const std::uint64_t row_digits = reader.u32(), col_digits = reader.u32();
    if (row_digits + col_digits > kDigits) refuse("digits of a piece, at most", kDigits, row_digits + col_digits);
    for (std::uint64_t i = 0; i < row_digits + col_digits; ++i) {
        Digit digit{reader.take<std::int64_t>(), reader.u32()};
        reader.skip(4);
        (i < row_digits ? piece.row_digits : piece.col_digits).push_back(digit);
    }
    reader.skip(start + kPiece - reader.position());
    return piece;
}

// Tensors take the pieces in their order, each piece once: what is read is never larger than what was written.
std::vector<Piece> parse_pieces(Reader& reader, const PieceRange& range, PieceRange& left, const std::string& where, std::uint32_t rows) {
    if (range.count > left.count) refuse(where + ": number of pieces, at most", left.count, range.count);
    if (range.first != left.first) refuse(where + ": first piece", left.first, range.first);
    left = {left.first + range.count, left.count - range.count};
    std::vector<Piece> pieces;
    std::uint64_t row = 0;
    for (std::uint32_t i = 0; i < range.count; ++i) {
        const Piece& piece = pieces.emplace_back(parse_piece(reader));
        if (piece.first_row != row || piece.rows == 0) refuse(where + ": first row of a piece", row, piece.first_row);
        row += piece.rows;
    }
    if (row != rows) refuse(where + ": rows of its pieces", rows, row);
    return pieces;
}

void parse_parts(Reader& reader, const PieceRanges& ranges, PieceRange& left, std::size_t index, TensorCode& tensor) {
    constexpr const char* names[kParts] = {"", ", second plane", ", entries"};
    for (std::size_t part = 0; part < kParts; ++part) {
        const std::string where = "tensor " + std::to_string(index) + names[part];
        const PieceRange& range = ranges[part];
        if (tensor.part_bits(part) != 0) {
            tensor.pieces[part] = parse_pieces(reader, range, left, where, tensor.rows);
        } else if (range.first != 0 || range.count != 0) {
            refuse(where + ": pieces of a part that its codec does not have", 0, std::max(range.first, range.count));
        }
    }
}

Operation parse_operation(Reader& reader) {
    Operation operation;
    const std::uint32_t opcode = reader.u32();
    if (opcode < 1 || opcode > 9) throw EngineFault("microcode: unknown opcode " + std::to_string(opcode));
    operation.opcode = static_cast<Opcode>(opcode);
    for (std::uint32_t& arg : operation.args) arg = reader.u32();
    return operation;
}

}  // namespace

std::uint32_t TensorCode::part_bits(std::size_t part) const {
    constexpr std::uint32_t bits[][kParts] = {{16, 0, 0}, {32, 0, 0}, {4, 4, 32}, {4, 0, 16}, {4, 0, 16}};
    return bits[static_cast<std::size_t>(codec) - 1][part];
}

std::uint64_t TensorCode::stored_bits() const {
    std::uint64_t bits = 0;
    for (std::size_t part = 0; part < kParts; ++part) {
        if (part_bits(part) != 0) bits += std::uint64_t{rows} * part_cols(part) * part_bits(part);
    }
    return bits;
}

Microcode parse_microcode(Bytes bytes) {
    if (bytes.size() < kHeader) refuse("bytes of a header, at least", kHeader, bytes.size());
    Microcode code;
    Reader reader(bytes);
    const Counts counts = parse_header(reader, bytes.size(), code);
    parse_registers(reader, counts.registers, code);
    std::vector<PieceRanges> ranges;
    for (std::uint32_t i = 0; i < counts.tensors; ++i) ranges.push_back(parse_tensor(reader, i, code.tensors.emplace_back()));
    PieceRange left{0, counts.pieces};
    for (std::size_t i = 0; i < ranges.size(); ++i) parse_parts(reader, ranges[i], left, i, code.tensors[i]);
    if (left.count != 0) refuse("pieces of no tensor", 0, left.count);
    for (std::uint32_t i = 0; i < counts.operations; ++i) code.operations.push_back(parse_operation(reader));
    return code;
}

}  // namespace sim
