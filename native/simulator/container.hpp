// The .axmodel container (ONNX ModelProto): where the blobs of each shape group are and what its inputs and outputs are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "axcl_abi.hpp"
#include "protobuf.hpp"

namespace sim {

struct IoSlot {
    std::string name;
    axcl::DataType type = axcl::DataType::none;
    std::vector<std::int32_t> dims;
    std::uint64_t elements = 0;
    std::uint64_t size = 0;  // bytes
};

struct ContainerGroup {
    std::vector<IoSlot> inputs, outputs;
    Bytes microcode;
    Bytes params;
};

struct Container {
    std::string compiler_version;
    std::vector<ContainerGroup> groups;  // in node order
};

// The container of `file`; its spans point into `file`. Throws EngineFault naming the field.
Container parse_container(Bytes file);

}  // namespace sim
