// A file mapped for reading.
#pragma once

#include <optional>

#include "protobuf.hpp"

namespace sim {

class MappedFile {
public:
    // Nothing if `path` is missing, empty or not a regular file.
    static std::optional<MappedFile> open(const char* path);

    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&&) = delete;
    ~MappedFile();

    Bytes bytes() const { return bytes_; }

private:
    explicit MappedFile(Bytes bytes) : bytes_(bytes) {}

    Bytes bytes_;
};

}  // namespace sim
