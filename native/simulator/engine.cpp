#include "engine.hpp"

#include <map>
#include <optional>
#include <string_view>

#include "fault.hpp"

namespace sim {
namespace {

// How each tensor of a group is used; one that is used as a matrix and as a vector is refused.
std::vector<std::optional<Packing>> find_uses(const Microcode& code) {
    std::vector<std::optional<Packing>> uses(code.tensors.size());
    const auto use = [&](std::uint32_t tensor, Packing packing) {
        if (uses[tensor].value_or(packing) != packing) {
            throw EngineFault("microcode: tensor " + std::to_string(tensor) + " is both a matrix and a vector or table");
        }
        uses[tensor] = packing;
    };
    for (const Operation& operation : code.operations) {
        const auto& a = operation.args;
        if (operation.opcode == Opcode::norm) use(a[2], Packing::flat);
        if (operation.opcode == Opcode::matmul) use(a[2], Packing::panels);
        if (operation.opcode == Opcode::matmul && a[3] != kNoTensor) use(a[3], Packing::flat);
        if (operation.opcode == Opcode::rope) use(a[2], Packing::flat);
        if (operation.opcode == Opcode::rope) use(a[3], Packing::flat);
    }
    return uses;
}

// Tensors may share weights, but all of them together hold at most twice what the blob holds.
void check_total(const Microcode& code, std::uint64_t blob) {
    std::uint64_t left = 16 * blob;  // bits
    for (std::size_t i = 0; i < code.tensors.size(); ++i) {
        const TensorCode& tensor = code.tensors[i];
        const bool fits = std::uint64_t{tensor.rows} * tensor.cols <= left && tensor.stored_bits() <= left;
        if (!fits) throw EngineFault("microcode: tensor " + std::to_string(i) + ": all tensors hold more elements than the weights");
        left -= tensor.stored_bits();
    }
}

using Stores = std::map<const std::byte*, PackedStore>;

std::shared_ptr<const Packed> pack(PackedStore& store, const TensorCode& tensor, Packing packing, std::size_t index) {
    try {
        return store.get(tensor, packing);
    } catch (const EngineFault& fault) {
        throw EngineFault("microcode: tensor " + std::to_string(index) + ": " + fault.what());
    }
}

Group load_group(const ContainerGroup& source, Stores& stores) {
    Group group{source.inputs, source.outputs, parse_microcode(source.microcode), {}, source.params.size()};
    check_operations(group.code, source);
    check_total(group.code, source.params.size());
    PackedStore& store = stores.try_emplace(source.params.data(), source.params).first->second;
    const auto uses = find_uses(group.code);
    for (std::size_t i = 0; i < uses.size(); ++i) {
        group.tensors.push_back(uses[i] ? pack(store, group.code.tensors[i], *uses[i], i) : nullptr);
    }
    return group;
}

}  // namespace

Engine load_engine(Bytes file) {
    const Container container = parse_container(file);
    Engine engine;
    engine.compiler_version = container.compiler_version;
    engine.file_size = file.size();
    Stores stores;
    for (std::size_t i = 0; i < container.groups.size(); ++i) {
        try {
            engine.groups.push_back(load_group(container.groups[i], stores));
        } catch (const EngineFault& fault) {
            throw EngineFault("group " + std::to_string(i) + ": " + fault.what());
        }
    }
    return engine;
}

bool is_named(const IoSlot& slot, const char* name) {
    const std::string_view full = slot.name, plain = name;
    if (!full.starts_with(plain)) return false;
    const auto suffix = full.substr(plain.size());
    return suffix.empty() || (suffix.size() > 1 && suffix[0] == '_' && suffix.find_first_not_of("0123456789", 1) == std::string_view::npos);
}

double modelled_microseconds(const Group& group) {
    constexpr double call = 457.0, bytes_per_microsecond = 25e3;
    double bytes = static_cast<double>(group.params_size);
    for (const IoSlot& slot : group.inputs) {
        if (is_named(slot, "K_cache") || is_named(slot, "V_cache")) bytes += static_cast<double>(slot.size);
    }
    return call + bytes / bytes_per_microsecond;
}

}  // namespace sim
