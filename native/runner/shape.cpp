#include "shape.hpp"

#include <algorithm>
#include <string>

#include "faults.hpp"

namespace runner {
namespace {

constexpr std::uint64_t kElement = 2;  // bytes of a bf16
constexpr std::uint64_t kIndex = 4;    // bytes of a u32

void expect(std::uint64_t expected, std::uint64_t found, const std::string& where) {
    if (expected == found) return;
    throw Fault(where + ": expected " + std::to_string(expected) + " bytes, found " + std::to_string(found));
}

void expect_type(const Engine& engine, const Tensor& tensor, axcl::DataType type) {
    if (tensor.type == type) return;
    throw Fault(engine.file() + ": " + tensor.name + ": data type: expected " + std::to_string(static_cast<int>(type)) +
                ", found " + std::to_string(static_cast<int>(tensor.type)));
}

Group read_group(const Engine& engine, std::uint32_t g) {
    const std::uint64_t tokens = engine.input("indices").bytes[g] / kIndex;
    const std::uint64_t mask = engine.input("mask").bytes[g];
    const std::uint64_t columns = tokens == 0 ? 0 : mask / kElement / tokens;
    if (tokens == 0 || columns < tokens || columns * tokens * kElement != mask) {
        throw Fault(engine.file() + ": mask: group " + std::to_string(g) + ": " + std::to_string(mask) +
                    " bytes do not make rows for " + std::to_string(tokens) + " tokens");
    }
    return {g, static_cast<std::uint32_t>(tokens), static_cast<std::uint32_t>(columns - tokens)};
}

void check_group(const Engine& engine, const LayerShape& shape, const Group& group) {
    const std::string where = ": group " + std::to_string(group.index);
    const std::uint64_t hidden = shape.hidden * group.tokens * kElement;
    const std::uint64_t rows = shape.kv_width * group.tokens * kElement;
    const std::uint64_t history = shape.kv_width * std::max<std::uint64_t>(group.history, 1) * kElement;
    for (const Tensor* tensor : {&engine.input("input"), &engine.output("output")}) {
        expect(hidden, tensor->bytes[group.index], engine.file() + ": " + tensor->name + where);
    }
    for (const char* name : {"K_cache_out", "V_cache_out"}) {
        expect(rows, engine.output(name).bytes[group.index], engine.file() + ": " + name + where);
    }
    for (const char* name : {"K_cache", "V_cache"}) {
        const std::uint64_t bytes = engine.input(name).bytes[group.index];
        if (bytes >= history && bytes <= shape.cache_rows * shape.kv_width * kElement) continue;
        expect(history, bytes, engine.file() + ": " + name + where);
    }
}

void read_decode(const Engine& engine, LayerShape& shape, const Group& group) {
    const std::uint64_t kv = engine.output("K_cache_out").bytes[group.index];
    const std::uint64_t cache = engine.input("K_cache").bytes[group.index];
    if (cache == kv)
        throw Fault(engine.file() + ": K_cache: a recurrent state, expected the cache of an attention layer");
    shape.hidden = engine.input("input").bytes[group.index] / kElement;
    shape.kv_width = kv / kElement;
    if (shape.kv_width == 0 || shape.hidden == 0) throw Fault(engine.file() + ": input: rows of no elements");
    shape.cache_rows = std::max(shape.cache_rows, cache / kv);
    shape.context = std::max<std::uint64_t>(shape.context, group.history);
}

}  // namespace

LayerShape read_layer_shape(const Engine& engine) {
    for (const char* name : {"K_cache", "V_cache", "input", "mask"}) {
        expect_type(engine, engine.input(name), axcl::DataType::bf16);
    }
    for (const char* name : {"K_cache_out", "V_cache_out", "output"}) {
        expect_type(engine, engine.output(name), axcl::DataType::bf16);
    }
    expect_type(engine, engine.input("indices"), axcl::DataType::uint32);
    LayerShape shape;
    for (std::uint32_t g = 0; g < engine.groups(); ++g) {
        shape.groups.push_back(read_group(engine, g));
        if (shape.groups.back().tokens == 1) read_decode(engine, shape, shape.groups.back());
    }
    if (shape.cache_rows == 0) throw Fault(engine.file() + ": has no decode group (indices of one element)");
    for (const Group& group : shape.groups) check_group(engine, shape, group);
    return shape;
}

}  // namespace runner
