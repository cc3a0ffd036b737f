#include "packed.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>

#include "fault.hpp"

namespace sim {
namespace {

constexpr std::size_t kHalf = kPanelRows / 2;

// Byte offsets of indices 0..count-1 of one axis.
std::vector<std::int64_t> axis_offsets(const std::vector<Digit>& digits, std::uint32_t count) {
    std::vector<std::int64_t> offsets(count, 0);
    for (std::uint32_t i = 0; i < count; ++i) {
        std::uint64_t rest = i;
        for (const Digit& digit : digits) {
            if (digit.size == 0) throw EngineFault("microcode: a digit of size 0");
            std::int64_t step = 0;
            if (__builtin_mul_overflow(digit.stride_bits, static_cast<std::int64_t>(rest % digit.size), &step) ||
                __builtin_add_overflow(offsets[i], step, &offsets[i])) {
                throw EngineFault("microcode: an address overflows");
            }
            rest /= digit.size;
        }
        if (rest != 0) throw EngineFault("microcode: digits do not reach index " + std::to_string(i));
        if (offsets[i] % 8 != 0) throw EngineFault("microcode: an element does not start on a byte");
        offsets[i] /= 8;
    }
    return offsets;
}

// Where the elements of a tensor stand: row r, column c at start[r] + cols[piece[r]][c], all proven to lie in the blob.
struct Places {
    std::vector<std::int64_t> start;
    std::vector<std::uint32_t> piece;
    std::vector<std::vector<std::int64_t>> cols;
};

void check_inside(std::int64_t base, const std::vector<std::int64_t>& rows, const std::vector<std::int64_t>& cols,
                  std::size_t width, std::size_t blob) {
    const auto [row_low, row_high] = std::ranges::minmax(rows);
    const auto [col_low, col_high] = std::ranges::minmax(cols);
    std::int64_t low = 0, high = 0;
    const bool overflow = __builtin_add_overflow(row_low, col_low, &low) || __builtin_add_overflow(low, base, &low) ||
                          __builtin_add_overflow(row_high, col_high, &high) || __builtin_add_overflow(high, base, &high);
    if (overflow || low < 0 || blob < width || high > static_cast<std::int64_t>(blob - width)) {
        throw EngineFault("microcode: an element lies outside the weights (expected byte 0 to " + std::to_string(blob) +
                          ", found " + std::to_string(low) + " to " + std::to_string(high) + ")");
    }
}

Places find_places(const TensorCode& tensor, std::size_t blob) {
    const std::size_t width = element_bytes(tensor.codec);
    if (std::uint64_t{tensor.rows} * tensor.cols > blob / width) {
        throw EngineFault("microcode: a tensor of more elements than the weights hold");
    }
    Places places;
    for (const Piece& piece : tensor.pieces) {
        if (piece.base_bits % 8 != 0) throw EngineFault("microcode: a piece does not start on a byte");
        const auto base = static_cast<std::int64_t>(piece.base_bits / 8);
        const auto rows = axis_offsets(piece.row_digits, piece.rows);
        auto cols = axis_offsets(piece.col_digits, tensor.cols);
        check_inside(base, rows, cols, width, blob);
        for (const std::int64_t row : rows) {
            places.start.push_back(base + row);
            places.piece.push_back(static_cast<std::uint32_t>(places.cols.size()));
        }
        places.cols.push_back(std::move(cols));
    }
    return places;
}

std::uint32_t load_word(const std::byte* at, Codec codec) {
    std::uint16_t half = 0;
    std::uint32_t word = 0;
    if (codec == Codec::fp32) {
        std::memcpy(&word, at, sizeof word);
        return word;
    }
    std::memcpy(&half, at, sizeof half);
    return half;
}

void gather_flat(const TensorCode& tensor, const Places& places, Bytes blob, float* out) {
    const unsigned shift = tensor.codec == Codec::bf16 ? 16 : 0;
    for (std::size_t r = 0; r < tensor.rows; ++r) {
        for (const std::int64_t col : places.cols[places.piece[r]]) {
            *out++ = std::bit_cast<float>(load_word(blob.data() + places.start[r] + col, tensor.codec) << shift);
        }
    }
}

// Rows [first, first + 16) stand side by side in one piece.
bool is_line(const Places& places, std::size_t first, std::size_t width) {
    if (first + kHalf > places.start.size()) return false;
    for (std::size_t i = 1; i < kHalf; ++i) {
        if (places.piece[first + i] != places.piece[first]) return false;
        if (places.start[first + i] != places.start[first] + static_cast<std::int64_t>(i * width)) return false;
    }
    return true;
}

// Elements of rows [first, first + 16) at column c; rows beyond the tensor are 0.
template <class T>
void gather_half(const Places& places, Bytes blob, std::size_t first, std::size_t c, bool line, T* out) {
    if (line) {
        std::memcpy(out, blob.data() + places.start[first] + places.cols[places.piece[first]][c], kHalf * sizeof(T));
        return;
    }
    for (std::size_t i = 0; i < kHalf; ++i) {
        const std::size_t r = first + i;
        out[i] = 0;
        if (r < places.start.size()) {
            std::memcpy(&out[i], blob.data() + places.start[r] + places.cols[places.piece[r]][c], sizeof(T));
        }
    }
}

void gather_panel_bf16(const Places& places, Bytes blob, std::size_t row, std::size_t cols, std::uint32_t* out) {
    const bool low_line = is_line(places, row, 2), high_line = is_line(places, row + kHalf, 2);
    std::uint16_t low[kHalf], high[kHalf];
    for (std::size_t c = 0; c < cols; ++c, out += kHalf) {
        gather_half(places, blob, row, c, low_line, low);
        gather_half(places, blob, row + kHalf, c, high_line, high);
        for (std::size_t i = 0; i < kHalf; ++i) out[i] = std::uint32_t{high[i]} << 16U | low[i];
    }
}

void gather_panel_fp32(const Places& places, Bytes blob, std::size_t row, std::size_t cols, std::uint32_t* out) {
    const bool low_line = is_line(places, row, 4), high_line = is_line(places, row + kHalf, 4);
    for (std::size_t c = 0; c < cols; ++c, out += kPanelRows) {
        gather_half(places, blob, row, c, low_line, out);
        gather_half(places, blob, row + kHalf, c, high_line, out + kHalf);
    }
}

std::size_t packed_bytes(const TensorCode& tensor, Packing packing) {
    if (packing == Packing::flat) return std::size_t{tensor.rows} * tensor.cols * 4;
    const std::size_t rows = (tensor.rows + kPanelRows - 1) / kPanelRows * kPanelRows;
    return rows * tensor.cols * element_bytes(tensor.codec);
}

std::size_t hash_bytes(const void* data, std::size_t size) {
    return std::hash<std::string_view>{}({static_cast<const char*>(data), size});
}

std::size_t hash_pieces(const TensorCode& tensor) {
    std::vector<std::uint64_t> words{tensor.rows, tensor.cols};
    for (const Piece& piece : tensor.pieces) {
        words.insert(words.end(), {piece.rows, piece.base_bits});
        for (const auto* digits : {&piece.row_digits, &piece.col_digits}) {
            for (const Digit& digit : *digits) {
                words.insert(words.end(), {static_cast<std::uint64_t>(digit.stride_bits), digit.size});
            }
        }
    }
    return hash_bytes(words.data(), words.size() * sizeof words[0]);
}

}  // namespace

Packed pack_tensor(const TensorCode& tensor, Packing packing, Bytes blob) {
    const Places places = find_places(tensor, blob.size());
    Packed packed{packing, tensor.codec, tensor.rows, tensor.cols, packed_bytes(tensor, packing), nullptr};
    packed.data = make_aligned<std::byte>(packed.size);
    if (packing == Packing::flat) {
        gather_flat(tensor, places, blob, reinterpret_cast<float*>(packed.data.get()));
        return packed;
    }
    auto* out = reinterpret_cast<std::uint32_t*>(packed.data.get());
    const std::size_t panel_words = kPanelRows * tensor.cols * element_bytes(tensor.codec) / 4;
    for (std::size_t row = 0; row < tensor.rows; row += kPanelRows, out += panel_words) {
        const auto gather = tensor.codec == Codec::bf16 ? gather_panel_bf16 : gather_panel_fp32;
        gather(places, blob, row, tensor.cols, out);
    }
    return packed;
}

std::shared_ptr<const Packed> PackedStore::shared(Packed&& packed) {
    const std::size_t hash = hash_bytes(packed.data.get(), packed.size);
    const auto [first, last] = packed_.equal_range(hash);
    for (auto entry = first; entry != last; ++entry) {
        const Packed& other = *entry->second;
        if (other.packing == packed.packing && other.codec == packed.codec && other.rows == packed.rows &&
            other.cols == packed.cols && std::memcmp(other.data.get(), packed.data.get(), packed.size) == 0) {
            return entry->second;
        }
    }
    return packed_.emplace(hash, std::make_shared<const Packed>(std::move(packed)))->second;
}

std::shared_ptr<const Packed> PackedStore::get(const TensorCode& tensor, Packing packing) {
    const std::size_t hash = hash_pieces(tensor);
    const auto [first, last] = entries_.equal_range(hash);
    for (auto entry = first; entry != last; ++entry) {
        if (entry->second.packing == packing && entry->second.tensor == tensor) return entry->second.packed;
    }
    auto packed = shared(pack_tensor(tensor, packing, blob_));
    entries_.emplace(hash, Entry{tensor, packing, packed});
    return packed;
}

}  // namespace sim
