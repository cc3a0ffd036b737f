#include "engine.hpp"

#include <algorithm>

#include "faults.hpp"
#include "signals.hpp"

namespace runner {
namespace {

// Queries answer an error as a huge unsigned number: nothing is allocated by a count or size that was not checked.
// Error codes come back as counts of about two thousand million (axclrt facts, hazard 9).
constexpr std::uint32_t kMaxTensors = 63, kMaxGroups = 1 << 16;
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 32U;

std::uint32_t checked_count(std::uint64_t count, std::uint32_t most, const std::string& file, const char* what) {
    if (count == 0 || count > most) {
        throw Fault(file + ": number of " + what + ": expected 1 to " + std::to_string(most) + ", found " + std::to_string(count));
    }
    return static_cast<std::uint32_t>(count);
}

// The same questions for inputs and outputs.
struct Side {
    const char* what;
    axcl::fn::axclrtEngineGetNumInputs count;
    axcl::fn::axclrtEngineGetInputNameByIndex name;
    axcl::fn::axclrtEngineGetInputDataType type;
    axcl::fn::axclrtEngineGetInputSizeByIndex size;
    axcl::fn::axclrtEngineGetInputIndexByName index;
};

Side input_side(const Library& lib) {
    return {"inputs",
            lib.axclrtEngineGetNumInputs,
            lib.axclrtEngineGetInputNameByIndex,
            lib.axclrtEngineGetInputDataType,
            lib.axclrtEngineGetInputSizeByIndex,
            lib.axclrtEngineGetInputIndexByName};
}

Side output_side(const Library& lib) {
    return {"outputs",
            lib.axclrtEngineGetNumOutputs,
            lib.axclrtEngineGetOutputNameByIndex,
            lib.axclrtEngineGetOutputDataType,
            lib.axclrtEngineGetOutputSizeByIndex,
            lib.axclrtEngineGetOutputIndexByName};
}

Tensor read_tensor(const Side& side, axcl::IoInfo info, const std::string& file, std::uint32_t i,
                   std::uint32_t groups) {
    const char* name = side.name(info, i);
    if (name == nullptr) throw Fault(file + ": " + side.what + " " + std::to_string(i) + " has no name");
    Tensor tensor{name, i, axcl::DataType::none, {}};
    if (side.index(info, name) != static_cast<std::int32_t>(i)) throw Fault(file + ": " + name + " is named twice");
    check(side.type(info, i, &tensor.type), "axclrtEngineGet*DataType", file + ": " + name);
    for (std::uint32_t group = 0; group < groups; ++group) {
        const std::uint64_t bytes = side.size(info, group, i);
        if (bytes == 0 || bytes >= kMaxBytes) {
            throw Fault(file + ": " + name + ": size in group " + std::to_string(group) +
                        ": expected below 2^32, found " + std::to_string(bytes));
        }
        tensor.bytes.push_back(bytes);
    }
    return tensor;
}

std::vector<Tensor> read_tensors(const Side& side, axcl::IoInfo info, const std::string& file, std::uint32_t groups) {
    std::vector<Tensor> tensors;
    const std::uint32_t count = checked_count(side.count(info), kMaxTensors, file, side.what);
    for (std::uint32_t i = 0; i < count; ++i) tensors.push_back(read_tensor(side, info, file, i, groups));
    return tensors;
}

const Tensor& find(const std::vector<Tensor>& tensors, const std::string& file, const std::string& name) {
    for (const std::string& candidate : {name, name + "_0"}) {
        const auto found = std::ranges::find(tensors, candidate, &Tensor::name);
        if (found != tensors.end()) return *found;
    }
    throw Fault(file + ": has no tensor " + name);
}

void check_all_bound(const std::vector<Tensor>& tensors, const std::vector<Binding>& bindings,
                     const std::string& file) {
    for (const Tensor& tensor : tensors) {
        if (std::ranges::count(bindings, &tensor, &Binding::tensor) != 1) {
            throw Fault(file + ": the runner has no buffer for tensor " + tensor.name);
        }
    }
}

}  // namespace

Engine::Engine(Resources& resources, const std::filesystem::path& file)
    : library_(&resources.library()),
      file_(file.string()),
      model_(resources.load(file)),
      info_(resources.info(model_)) {
    std::int32_t groups = 0;
    check(library_->axclrtEngineGetShapeGroupsCount(info_, &groups), "axclrtEngineGetShapeGroupsCount", file_);
    groups_ = checked_count(static_cast<std::uint32_t>(groups), kMaxGroups, file_, "shape groups");
    inputs_ = read_tensors(input_side(*library_), info_, file_, groups_);
    outputs_ = read_tensors(output_side(*library_), info_, file_, groups_);
    check(library_->axclrtEngineCreateContext(model_, &context_), "axclrtEngineCreateContext", file_);
}

const Tensor& Engine::input(const std::string& name) const { return find(inputs_, file_, name); }

const Tensor& Engine::output(const std::string& name) const { return find(outputs_, file_, name); }

axcl::Io Engine::bind(Resources& resources, std::uint32_t group, const std::vector<Binding>& inputs,
                      const std::vector<Binding>& outputs) const {
    check_all_bound(inputs_, inputs, file_);
    check_all_bound(outputs_, outputs, file_);
    const axcl::Io io = resources.io(info_);
    for (const auto& [tensor, memory] : inputs) {
        check(library_->axclrtEngineSetInputBufferByIndex(io, tensor->index, memory, tensor->bytes[group]),
              "axclrtEngineSetInputBufferByIndex", file_ + ": " + tensor->name);
    }
    for (const auto& [tensor, memory] : outputs) {
        check(library_->axclrtEngineSetOutputBufferByIndex(io, tensor->index, memory, tensor->bytes[group]),
              "axclrtEngineSetOutputBufferByIndex", file_ + ": " + tensor->name);
    }
    return io;
}

void Engine::execute(std::uint32_t group, axcl::Io io) const {
    signals::check();
    check(library_->axclrtEngineExecute(model_, context_, group, io), "axclrtEngineExecute",
          file_ + ": group " + std::to_string(group));
}

}  // namespace runner
