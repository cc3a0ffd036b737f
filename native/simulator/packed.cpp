#include "packed.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <string_view>

#include "fault.hpp"
#include "gather_integers.hpp"
#include "places.hpp"

namespace sim {
namespace {

constexpr std::size_t kHalf = kPanelRows / 2;

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

std::size_t padded_rows(const TensorCode& tensor) { return (tensor.rows + kPanelRows - 1) / kPanelRows * kPanelRows; }

std::size_t packed_bytes(const TensorCode& tensor, Packing packing) {
    if (packing == Packing::flat) return std::size_t{tensor.rows} * tensor.cols * 4;
    if (!is_float(tensor.codec)) return padded_rows(tensor) * (even(tensor.cols) + std::size_t{tensor.part_cols(entries)} * 4);
    return padded_rows(tensor) * tensor.cols * (tensor.part_bits(low_plane) / 8);
}

void gather_panels(const TensorCode& tensor, const Places& places, Bytes blob, std::uint32_t* out) {
    const auto gather = tensor.codec == Codec::bf16 ? gather_panel_bf16 : gather_panel_fp32;
    const std::size_t panel_words = tensor.cols * (tensor.part_bits(low_plane) / 8 * kPanelRows / 4);
    for (std::size_t row = 0; row < tensor.rows; row += kPanelRows, out += panel_words) gather(places, blob, row, tensor.cols, out);
}

std::size_t hash_bytes(const void* data, std::size_t size) {
    return std::hash<std::string_view>{}({static_cast<const char*>(data), size});
}

std::size_t hash_pieces(const TensorCode& tensor) {
    std::vector<std::uint64_t> words{tensor.rows, tensor.cols};
    for (const auto& pieces : tensor.pieces) {
        for (const Piece& piece : pieces) {
            words.insert(words.end(), {piece.rows, piece.base_bits});
            for (const auto* digits : {&piece.row_digits, &piece.col_digits}) {
                for (const Digit& digit : *digits) {
                    words.insert(words.end(), {static_cast<std::uint64_t>(digit.stride_bits), digit.size});
                }
            }
        }
    }
    return hash_bytes(words.data(), words.size() * sizeof words[0]);
}

}  // namespace

Packed pack_tensor(const TensorCode& tensor, Packing packing, Bytes blob) {
    if (tensor.stored_bits() > std::uint64_t{blob.size()} * 8) throw EngineFault("more elements than the weights hold");
    Packed packed{packing, tensor.codec, tensor.rows, tensor.cols, tensor.group, packed_bytes(tensor, packing), nullptr};
    packed.data = make_aligned<std::byte>(packed.size);
    if (!is_float(tensor.codec)) {
        gather_integers(tensor, blob, reinterpret_cast<std::int8_t*>(packed.data.get()));
        gather_scales(tensor, blob, const_cast<float*>(packed.scales()));
        return packed;
    }
    const Places places = find_places(tensor, low_plane, blob.size());
    if (packing == Packing::flat) {
        gather_flat(tensor, places, blob, reinterpret_cast<float*>(packed.data.get()));
    } else {
        gather_panels(tensor, places, blob, reinterpret_cast<std::uint32_t*>(packed.data.get()));
    }
    return packed;
}

std::shared_ptr<const Packed> PackedStore::shared(Packed&& packed) {
    const std::size_t hash = hash_bytes(packed.data.get(), packed.size);
    const auto [first, last] = packed_.equal_range(hash);
    for (auto entry = first; entry != last; ++entry) {
        const Packed& other = *entry->second;
        if (other.packing == packed.packing && other.codec == packed.codec && other.rows == packed.rows &&
            other.cols == packed.cols && other.group == packed.group && other.size == packed.size &&
            std::memcmp(other.data.get(), packed.data.get(), packed.size) == 0) {
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
