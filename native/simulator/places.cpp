#include "places.hpp"

#include <algorithm>
#include <string>

#include "fault.hpp"

namespace sim {
namespace {

constexpr std::uint32_t kByte = 8, kHalfByte = 4;

std::string unit_name(std::uint32_t unit) { return unit == kByte ? "a byte" : "half a byte"; }

// Offsets of indices 0..count-1 of one axis, in units of `unit` bits.
std::vector<std::int64_t> axis_offsets(const std::vector<Digit>& digits, std::uint32_t count, std::uint32_t unit) {
    std::vector<std::int64_t> offsets(count, 0);
    for (std::uint32_t i = 0; i < count; ++i) {
        std::uint64_t rest = i;
        for (const Digit& digit : digits) {
            if (digit.size == 0) throw EngineFault("a digit of size 0");
            std::int64_t step = 0;
            if (__builtin_mul_overflow(digit.stride_bits, static_cast<std::int64_t>(rest % digit.size), &step) ||
                __builtin_add_overflow(offsets[i], step, &offsets[i])) {
                throw EngineFault("an address overflows");
            }
            rest /= digit.size;
        }
        if (rest != 0) throw EngineFault("digits do not reach index " + std::to_string(i));
        if (offsets[i] % unit != 0) throw EngineFault("an element does not start on " + unit_name(unit));
        offsets[i] /= unit;
    }
    return offsets;
}

// All in units: `width` of an element, `size` of the blob.
void check_inside(std::int64_t base, const std::vector<std::int64_t>& rows, const std::vector<std::int64_t>& cols,
                  std::size_t width, std::size_t size) {
    const auto [row_low, row_high] = std::ranges::minmax(rows);
    const auto [col_low, col_high] = std::ranges::minmax(cols);
    std::int64_t low = 0, high = 0;
    const bool overflow = __builtin_add_overflow(row_low, col_low, &low) || __builtin_add_overflow(low, base, &low) ||
                          __builtin_add_overflow(row_high, col_high, &high) || __builtin_add_overflow(high, base, &high);
    if (overflow || low < 0 || size < width || high > static_cast<std::int64_t>(size - width)) {
        throw EngineFault("an element lies outside the weights (expected 0 to " + std::to_string(size) + ", found " +
                          std::to_string(low) + " to " + std::to_string(high) + ")");
    }
}

}  // namespace

Places find_places(const TensorCode& tensor, Part part, std::size_t blob) {
    const std::uint32_t bits = tensor.part_bits(part), cols = tensor.part_cols(part);
    const std::uint32_t unit = bits == kHalfByte ? kHalfByte : kByte;
    const std::size_t width = bits / unit, size = blob * (kByte / unit);
    if (std::uint64_t{tensor.rows} * cols > size / width) throw EngineFault("more elements than the weights hold");
    Places places;
    for (const Piece& piece : tensor.pieces[part]) {
        if (piece.base_bits % unit != 0) throw EngineFault("a piece does not start on " + unit_name(unit));
        const auto base = static_cast<std::int64_t>(piece.base_bits / unit);
        const auto rows = axis_offsets(piece.row_digits, piece.rows, unit);
        auto offsets = axis_offsets(piece.col_digits, cols, unit);
        check_inside(base, rows, offsets, width, size);
        for (const std::int64_t row : rows) {
            places.start.push_back(base + row);
            places.piece.push_back(static_cast<std::uint32_t>(places.cols.size()));
        }
        places.cols.push_back(std::move(offsets));
    }
    return places;
}

}  // namespace sim
