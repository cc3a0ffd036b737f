#include "gather_integers.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "fault.hpp"
#include "packed.hpp"
#include "places.hpp"

namespace sim {
namespace {

constexpr std::size_t kBlock = 128;  // columns whose part of a panel stays in the first-level cache

unsigned half_byte(Bytes blob, std::int64_t at) {
    return std::to_integer<unsigned>(blob[static_cast<std::size_t>(at >> 1)]) >> (at & 1) * 4 & 0xFU;
}

float half_float(std::uint16_t bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const float sign = (bits & 0x8000) != 0 ? -1.0F : 1.0F;
    if (exponent == 31) return sign * (fraction == 0 ? HUGE_VALF : NAN);
    return sign * (exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                 : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25));
}

// The number that engines multiply with: of a `reciprocal` entry the second half (docs/quantization.md).
float read_scale(Codec codec, const std::byte* at) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, codec == Codec::s8_reciprocal ? at + 2 : at, sizeof bits);
    return codec == Codec::s4_fp16 ? half_float(bits) : std::bit_cast<float>(std::uint32_t{bits} << 16U);
}

// Columns are packed in pairs.
std::size_t place_of(std::size_t column) { return column / 2 * 2 * kPanelRows + column % 2; }

// One row of one block of columns.
void gather_row(const Places& low, const Places* high, Bytes blob, std::size_t row, std::size_t first, std::size_t last, std::int8_t* out) {
    const std::int64_t low_start = low.start[row];
    const std::int64_t* const low_cols = low.cols[low.piece[row]].data();
    if (high == nullptr) {
        for (std::size_t c = first; c < last; ++c) {
            out[place_of(c)] = static_cast<std::int8_t>(static_cast<int>(half_byte(blob, low_start + low_cols[c])) - 8);
        }
        return;
    }
    const std::int64_t high_start = high->start[row];
    const std::int64_t* const high_cols = high->cols[high->piece[row]].data();
    for (std::size_t c = first; c < last; ++c) {
        const unsigned fine = half_byte(blob, low_start + low_cols[c]), coarse = half_byte(blob, high_start + high_cols[c]);
        out[place_of(c)] = static_cast<std::int8_t>((coarse ^ 8U) << 4U | fine);  // coarse has a bias of 8
    }
}

}  // namespace

void gather_integers(const TensorCode& tensor, Bytes blob, std::int8_t* panels) {
    const bool two = tensor.part_bits(high_plane) != 0;
    const Places low = find_places(tensor, low_plane, blob.size());
    const Places high = two ? find_places(tensor, high_plane, blob.size()) : Places{};
    const std::size_t panel = kPanelRows * even(tensor.cols);
    for (std::size_t row = 0; row < tensor.rows; row += kPanelRows, panels += panel) {
        const std::size_t rows = std::min<std::size_t>(kPanelRows, tensor.rows - row);
        if (rows < kPanelRows || panel > kPanelRows * tensor.cols) std::memset(panels, 0, panel);
        for (std::size_t first = 0; first < tensor.cols; first += kBlock) {
            const std::size_t last = std::min<std::size_t>(tensor.cols, first + kBlock);
            for (std::size_t i = 0; i < rows; ++i) {
                gather_row(low, two ? &high : nullptr, blob, row + i, first, last, panels + 2 * i);
            }
        }
    }
}

void gather_scales(const TensorCode& tensor, Bytes blob, float* panels) {
    const Places places = find_places(tensor, entries, blob.size());
    const std::size_t groups = tensor.part_cols(entries);
    for (std::size_t row = 0; row < (tensor.rows + kPanelRows - 1) / kPanelRows * kPanelRows; ++row) {
        float* const out = panels + row / kPanelRows * kPanelRows * groups + row % kPanelRows;
        for (std::size_t group = 0; group < groups; ++group) {
            float& scale = out[group * kPanelRows] = 0;
            if (row >= tensor.rows) continue;
            scale = read_scale(tensor.codec, blob.data() + places.at(row, group));
            if (scale > 0 && std::isfinite(scale)) continue;
            throw EngineFault("scale of row " + std::to_string(row) + ", group " + std::to_string(group) +
                              " (expected above 0 and finite, found " + std::to_string(scale) + ")");
        }
    }
}

}  // namespace sim
