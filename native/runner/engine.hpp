// One loaded engine: its tensors as the driver describes them, and calls with everything bound.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "resources.hpp"

namespace runner {

// Names and types are the same for every shape group; sizes are per group.
struct Tensor {
    std::string name;
    std::uint32_t index = 0;
    axcl::DataType type = axcl::DataType::none;
    std::vector<std::uint64_t> bytes;
};

struct Binding {
    const Tensor* tensor;
    const void* memory;  // the base of an allocation on the device
};

class Engine {
  public:
    // Loads `file` and reads its IO info. Throws DeviceFault, or Fault for an info that cannot be true.
    Engine(Resources& resources, const std::filesystem::path& file);

    const std::string& file() const { return file_; }
    std::uint32_t groups() const { return groups_; }
    const std::vector<Tensor>& inputs() const { return inputs_; }
    const std::vector<Tensor>& outputs() const { return outputs_; }

    // By plain name, else with the suffix of group 0. Throws Fault.
    const Tensor& input(const std::string& name) const;
    const Tensor& output(const std::string& name) const;

    // An IO handle for one group, every tensor bound with its exact size. Throws Fault if one is left out.
    axcl::Io bind(Resources& resources, std::uint32_t group, const std::vector<Binding>& inputs,
                  const std::vector<Binding>& outputs) const;

    // Blocks until done. Throws DeviceFault; Interrupted before the call.
    void execute(std::uint32_t group, axcl::Io io) const;

  private:
    const Library* library_;
    std::string file_;
    axcl::ModelId model_;
    axcl::EngineContextId context_ = 0;
    axcl::IoInfo info_;
    std::uint32_t groups_ = 0;
    std::vector<Tensor> inputs_, outputs_;
};

}  // namespace runner
