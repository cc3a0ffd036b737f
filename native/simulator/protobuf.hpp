// A bounds-checked reader of the protobuf wire format: fields of one message, one at a time, nothing copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace sim {

using Bytes = std::span<const std::byte>;

class Message {
public:
    explicit Message(Bytes bytes) : bytes_(bytes) {}

    // Moves to the next field. False at the end. Throws EngineFault on a field that leaves the message.
    bool next();

    std::uint32_t field() const { return field_; }
    // The value of a varint or fixed field; throws EngineFault on a length-delimited one.
    std::uint64_t number() const;
    // The payload of a length-delimited field; throws EngineFault on any other.
    Bytes bytes() const;
    std::string_view text() const;
    bool is_bytes() const { return wire_ == 2; }

private:
    std::uint64_t varint();
    std::uint64_t fixed(std::size_t width);
    Bytes take(std::uint64_t size);

    Bytes bytes_;
    std::size_t position_ = 0;
    std::uint32_t field_ = 0, wire_ = 0;
    std::uint64_t number_ = 0;
    Bytes payload_;
};

// All numbers of a packed repeated varint field.
template <class Visit>
void for_each_packed(Bytes bytes, Visit visit);

// One varint from the front of `bytes`, which is shortened by it. Throws EngineFault.
std::uint64_t take_varint(Bytes& bytes);

template <class Visit>
void for_each_packed(Bytes bytes, Visit visit) {
    while (!bytes.empty()) visit(take_varint(bytes));
}

}  // namespace sim
