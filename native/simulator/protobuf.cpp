#include "protobuf.hpp"

#include <string>

#include "fault.hpp"

namespace sim {

std::uint64_t take_varint(Bytes& bytes) {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
        if (bytes.empty()) throw EngineFault("protobuf: a number runs off the end of its message");
        const auto byte = std::to_integer<std::uint64_t>(bytes.front());
        bytes = bytes.subspan(1);
        value |= shift < 64 ? (byte & 0x7FU) << shift : 0U;
        if ((byte & 0x80U) == 0) return value;
    }
    throw EngineFault("protobuf: a number is longer than 10 bytes");
}

std::uint64_t Message::varint() {
    Bytes rest = bytes_.subspan(position_);
    const std::uint64_t value = take_varint(rest);
    position_ = bytes_.size() - rest.size();
    return value;
}

Bytes Message::take(std::uint64_t size) {
    if (size > bytes_.size() - position_) {
        throw EngineFault("protobuf: field " + std::to_string(field_) + " of " + std::to_string(size) +
                          " bytes leaves its message (expected at most " + std::to_string(bytes_.size() - position_) + ")");
    }
    const Bytes taken = bytes_.subspan(position_, static_cast<std::size_t>(size));
    position_ += taken.size();
    return taken;
}

std::uint64_t Message::fixed(std::size_t width) {
    std::uint64_t value = 0;
    unsigned shift = 0;
    for (const std::byte byte : take(width)) {
        value |= std::to_integer<std::uint64_t>(byte) << shift;
        shift += 8;
    }
    return value;
}

bool Message::next() {
    if (position_ == bytes_.size()) return false;
    const std::uint64_t key = varint();
    if (key >> 3U == 0 || key >> 32U != 0) throw EngineFault("protobuf: illegal field key " + std::to_string(key));
    field_ = static_cast<std::uint32_t>(key >> 3U);
    wire_ = static_cast<std::uint32_t>(key & 7U);
    switch (wire_) {
        case 0: number_ = varint(); break;
        case 1: number_ = fixed(8); break;
        case 2: payload_ = take(varint()); break;
        case 5: number_ = fixed(4); break;
        default: throw EngineFault("protobuf: unknown wire type " + std::to_string(wire_));
    }
    return true;
}

std::uint64_t Message::number() const {
    if (is_bytes()) throw EngineFault("protobuf: field " + std::to_string(field_) + " holds bytes (expected a number)");
    return number_;
}

Bytes Message::bytes() const {
    if (!is_bytes()) throw EngineFault("protobuf: field " + std::to_string(field_) + " holds a number (expected bytes)");
    return payload_;
}

std::string_view Message::text() const {
    const Bytes payload = bytes();
    return {reinterpret_cast<const char*>(payload.data()), payload.size()};
}

}  // namespace sim
