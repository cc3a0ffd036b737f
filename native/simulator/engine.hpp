// A loaded engine: its shape groups, each with its program and its weights packed for the kernels.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "container.hpp"
#include "microcode.hpp"
#include "packed.hpp"

namespace sim {

struct Group {
    std::vector<IoSlot> inputs, outputs;
    Microcode code;
    std::vector<std::shared_ptr<const Packed>> tensors;  // as in code.tensors; null for one that no operation uses
    std::uint64_t params_size = 0;

    bool is_decode() const { return code.m == 1; }
};

struct Engine {
    std::string compiler_version;
    std::vector<Group> groups;
    std::uint64_t file_size = 0;
};

// Parses, checks and packs. Nothing of `file` is kept. Throws EngineFault.
Engine load_engine(Bytes file);

// The microseconds a card takes for one call of this group: a fixed price, then weights and caches at 25 GB/s.
double modelled_microseconds(const Group& group);

// The part of a name before the `_<group>` suffix is what runners know: K_cache, V_cache_out, output.
bool is_named(const IoSlot& slot, const char* name);

}  // namespace sim
