#include "container.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "fault.hpp"

namespace sim {
namespace {

// Field numbers of onnx.proto3.
namespace model { constexpr std::uint32_t producer_version = 3, doc_string = 6, graph = 7; }
namespace graph { constexpr std::uint32_t node = 1, initializer = 5, input = 11, output = 12; }
namespace node { constexpr std::uint32_t input = 1, output = 2, name = 3, op_type = 4, attribute = 5; }
namespace attribute { constexpr std::uint32_t name = 1, text = 4; }
namespace tensor { constexpr std::uint32_t dims = 1, data_type = 2, name = 8, raw_data = 9, external_data = 13, location = 14; }
namespace value { constexpr std::uint32_t name = 1, type = 2; }
namespace type { constexpr std::uint32_t tensor = 1; }
namespace tensor_type { constexpr std::uint32_t elem = 1, shape = 2; }
namespace shape { constexpr std::uint32_t dim = 1, dim_value = 1; }

struct Node {
    std::string name, op_type, graph_info;
    std::vector<std::string> inputs, outputs;
};

struct Initializer {
    Bytes data;
    std::uint64_t type = 0, elements = 1;
    bool external = false;
};

struct Graph {
    std::vector<Node> nodes;
    std::map<std::string, Initializer, std::less<>> initializers;
    std::map<std::string, IoSlot, std::less<>> values;
};

struct ElementType {
    std::uint64_t onnx;
    axcl::DataType axcl;
    std::uint64_t bytes;
};
constexpr ElementType kElementTypes[] = {
    {1, axcl::DataType::fp32, 4},   {2, axcl::DataType::uint8, 1},   {3, axcl::DataType::int8, 1},
    {4, axcl::DataType::uint16, 2}, {5, axcl::DataType::int16, 2},   {6, axcl::DataType::int32, 4},
    {7, axcl::DataType::int64, 8},  {10, axcl::DataType::fp16, 2},   {11, axcl::DataType::fp64, 8},
    {12, axcl::DataType::uint32, 4}, {13, axcl::DataType::uint64, 8}, {16, axcl::DataType::bf16, 2},
};

const ElementType& element_type(std::uint64_t onnx, const std::string& name) {
    const auto* found = std::ranges::find(kElementTypes, onnx, &ElementType::onnx);
    if (found == std::end(kElementTypes)) {
        throw EngineFault(name + ": unknown element type " + std::to_string(onnx));
    }
    return *found;
}

void parse_shape(Bytes bytes, IoSlot& slot) {
    for (Message dims(bytes); dims.next();) {
        if (dims.field() != shape::dim) continue;
        std::uint64_t size = 0;
        for (Message dim(dims.bytes()); dim.next();) {
            if (dim.field() == shape::dim_value) size = dim.number();
        }
        if (size == 0 || size > INT32_MAX || slot.dims.size() == axcl::kMaxDims) {
            throw EngineFault(slot.name + ": dimension " + std::to_string(size) + " (expected 1 to 2^31-1, at most 32 of them)");
        }
        slot.dims.push_back(static_cast<std::int32_t>(size));
    }
}

void parse_tensor_type(Bytes bytes, IoSlot& slot) {
    std::uint64_t onnx = 0;
    for (Message field(bytes); field.next();) {
        if (field.field() == tensor_type::elem) onnx = field.number();
        if (field.field() == tensor_type::shape) parse_shape(field.bytes(), slot);
    }
    const ElementType& element = element_type(onnx, slot.name);
    slot.type = element.axcl;
    slot.elements = 1;
    for (const std::int32_t dim : slot.dims) {
        if (__builtin_mul_overflow(slot.elements, static_cast<std::uint64_t>(dim), &slot.elements)) {
            throw EngineFault(slot.name + ": its shape overflows");
        }
    }
    if (slot.elements >= 1ULL << 32U) throw EngineFault(slot.name + ": larger than 4 Gi elements");
    slot.size = slot.elements * element.bytes;
}

IoSlot parse_value(Bytes bytes) {
    IoSlot slot;
    Bytes tensor;
    for (Message field(bytes); field.next();) {
        if (field.field() == value::name) slot.name = field.text();
        if (field.field() != value::type) continue;
        for (Message kind(field.bytes()); kind.next();) {
            if (kind.field() == type::tensor) tensor = kind.bytes();
        }
    }
    parse_tensor_type(tensor, slot);
    return slot;
}

void parse_attribute(Bytes bytes, Node& out) {
    std::string_view name, text;
    for (Message field(bytes); field.next();) {
        if (field.field() == attribute::name) name = field.text();
        if (field.field() == attribute::text) text = field.text();
    }
    if (name == "npu_graph_info") out.graph_info = text;
}

Node parse_node(Bytes bytes) {
    Node out;
    for (Message field(bytes); field.next();) {
        switch (field.field()) {
            case node::input: out.inputs.emplace_back(field.text()); break;
            case node::output: out.outputs.emplace_back(field.text()); break;
            case node::name: out.name = field.text(); break;
            case node::op_type: out.op_type = field.text(); break;
            case node::attribute: parse_attribute(field.bytes(), out); break;
            default: break;
        }
    }
    return out;
}

void parse_initializer(Bytes bytes, Graph& out) {
    std::string name;
    Initializer found;
    const auto multiply = [&](std::uint64_t dim) {
        if (!__builtin_mul_overflow(found.elements, dim, &found.elements)) return;
        throw EngineFault("initializer " + name + ": its dims overflow");
    };
    for (Message field(bytes); field.next();) {
        switch (field.field()) {
            case tensor::dims:
                if (field.is_bytes()) for_each_packed(field.bytes(), multiply);
                else multiply(field.number());
                break;
            case tensor::data_type: found.type = field.number(); break;
            case tensor::name: name = field.text(); break;
            case tensor::raw_data: found.data = field.bytes(); break;
            case tensor::external_data: found.external = true; break;
            case tensor::location: found.external = found.external || field.number() == 1; break;
            default: break;
        }
    }
    if (!out.initializers.emplace(name, found).second) throw EngineFault("initializer " + name + ": stands twice");
}

Graph parse_graph(Bytes bytes) {
    Graph out;
    for (Message field(bytes); field.next();) {
        switch (field.field()) {
            case graph::node: out.nodes.push_back(parse_node(field.bytes())); break;
            case graph::initializer: parse_initializer(field.bytes(), out); break;
            case graph::input:
            case graph::output: {
                IoSlot slot = parse_value(field.bytes());
                std::string name = slot.name;
                if (out.values.emplace(name, std::move(slot)).second) break;
                throw EngineFault(name + ": two inputs or outputs of one name");
            }
            default: break;
        }
    }
    return out;
}

Bytes initializer(const Graph& graph, const Node& node, const std::string& name) {
    const auto found = graph.initializers.find(name);
    if (found == graph.initializers.end()) throw EngineFault(node.name + ": no initializer " + name);
    const Initializer& stored = found->second;
    if (stored.external) throw EngineFault("initializer " + name + ": external data: it is not in the file");
    const std::uint64_t width = element_type(stored.type, "initializer " + name).bytes;
    if (stored.data.size() % width != 0 || stored.elements != stored.data.size() / width) {
        throw EngineFault("initializer " + name + ": dims disagree with its data (expected " +
                          std::to_string(stored.elements) + " elements of " + std::to_string(width) + " bytes, found " +
                          std::to_string(stored.data.size()) + " bytes)");
    }
    return stored.data;
}

std::vector<IoSlot> slots(const Graph& graph, const Node& node, const std::vector<std::string>& names) {
    std::vector<IoSlot> out;
    for (const std::string& name : names) {
        const auto found = graph.values.find(name);
        if (found == graph.values.end()) throw EngineFault(node.name + ": no type and shape for " + name);
        out.push_back(found->second);
    }
    return out;
}

ContainerGroup make_group(const Graph& graph, const Node& node) {
    ContainerGroup group{slots(graph, node, node.inputs), slots(graph, node, node.outputs), {}, {}};
    try {
        const auto info = nlohmann::json::parse(node.graph_info);
        const auto& neu = info.at("dotneus").at(0);
        group.microcode = initializer(graph, node, neu.at("neu_key").get<std::string>());
        group.params = initializer(graph, node, neu.at("extra_inputs").at(0).at("const_data_key").get<std::string>());
    } catch (const nlohmann::json::exception& fault) {
        throw EngineFault(node.name + ": npu_graph_info: " + fault.what());
    }
    return group;
}

void check_same_interface(const ContainerGroup& first, const ContainerGroup& other, std::size_t index) {
    const std::string suffix = "_" + std::to_string(index);
    const auto differs = [&](const IoSlot& a, const IoSlot& b) {
        const std::string plain = a.name.ends_with("_0") ? a.name.substr(0, a.name.size() - 2) : a.name;
        return a.type != b.type || (b.name != plain + suffix && b.name != a.name + suffix);
    };
    for (const auto side : {&ContainerGroup::inputs, &ContainerGroup::outputs}) {
        const auto &expected = first.*side, &found = other.*side;
        if (expected.size() != found.size()) {
            throw EngineFault("group " + std::to_string(index) + ": number of inputs or outputs (expected " +
                              std::to_string(expected.size()) + ", found " + std::to_string(found.size()) + ")");
        }
        for (std::size_t i = 0; i < found.size(); ++i) {
            if (!differs(expected[i], found[i])) continue;
            throw EngineFault("group " + std::to_string(index) + ": name or type of an input or output (expected " +
                              expected[i].name + suffix + ", found " + found[i].name + ")");
        }
    }
}

std::string version_line(std::string_view doc, std::string_view producer) {
    constexpr std::string_view key = "Pulsar2 Version:";
    const auto at = doc.find(key);
    if (at == std::string_view::npos) return std::string(producer);
    const auto line = doc.substr(at + key.size(), doc.find('\n', at) - at - key.size());
    return std::string(line.substr(std::min(line.find_first_not_of(' '), line.size())));
}

}  // namespace

Container parse_container(Bytes file) {
    std::string_view doc, producer;
    Bytes graph_bytes;
    for (Message field(file); field.next();) {
        if (field.field() == model::producer_version) producer = field.text();
        if (field.field() == model::doc_string) doc = field.text();
        if (field.field() == model::graph) graph_bytes = field.bytes();
    }
    const Graph graph = parse_graph(graph_bytes);
    Container out;
    out.compiler_version = version_line(doc, producer);
    for (const Node& node : graph.nodes) {
        if (node.op_type == "neu mode") out.groups.push_back(make_group(graph, node));
    }
    if (out.groups.empty()) throw EngineFault("no \"neu mode\" node: not an engine");
    for (std::size_t i = 1; i < out.groups.size(); ++i) check_same_interface(out.groups[0], out.groups[i], i);
    return out;
}

}  // namespace sim
