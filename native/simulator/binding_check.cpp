#include "binding_check.hpp"

#include <algorithm>

namespace sim {
namespace {

// Decode may write its new K and V rows straight into the cache.
bool is_row_output(const Group& group, const IoSlot& slot) {
    return group.is_decode() && (is_named(slot, "K_cache_out") || is_named(slot, "V_cache_out"));
}

bool is_base(const Group& group, const IoSlot& slot, std::uint64_t offset) {
    return offset == 0 || (is_row_output(group, slot) && offset % slot.size == 0);
}

// What is left of the allocation from the bound pointer on, at most the declared size.
std::optional<Span> resolve(const IoSlot& slot, const BoundBuffer& buffer, const DeviceMemory& memory) {
    if (auto whole = memory.find(buffer.device, slot.size)) return whole;
    auto start = memory.find(buffer.device, 1);
    if (start) start->size = start->owner->size - start->offset;
    return start;
}

void check_side(const Group& group, const std::vector<IoSlot>& slots, const std::vector<BoundBuffer>& buffers,
                const DeviceMemory& memory, std::vector<std::optional<Span>>& spans, CheckedBindings& out) {
    for (std::size_t i = 0; i < slots.size(); ++i) {
        spans.emplace_back();
        if (buffers[i].device == nullptr) {
            out.breaches.push_back(Breach::unbound);
            continue;
        }
        spans.back() = resolve(slots[i], buffers[i], memory);
        if (!spans.back()) {
            out.foreign = true;
            continue;
        }
        if (buffers[i].size != slots[i].size) out.breaches.push_back(Breach::size_mismatch);
        if (spans.back()->size < slots[i].size) out.breaches.push_back(Breach::beyond_allocation);
        if (!is_base(group, slots[i], spans.back()->offset)) out.breaches.push_back(Breach::interior_pointer);
    }
}

bool overlap(const std::optional<Span>& a, const std::optional<Span>& b) {
    return a && b && a->owner == b->owner && a->offset < b->offset + b->size && b->offset < a->offset + a->size;
}

bool may_overlap(const Group& group, const IoSlot& input, const IoSlot& output) {
    if (!group.is_decode()) return false;
    return (is_named(input, "K_cache") && is_named(output, "K_cache_out")) ||
           (is_named(input, "V_cache") && is_named(output, "V_cache_out"));
}

void check_overlaps(const Group& group, CheckedBindings& out) {
    for (std::size_t o = 0; o < out.outputs.size(); ++o) {
        for (std::size_t i = 0; i < out.inputs.size(); ++i) {
            if (overlap(out.outputs[o], out.inputs[i]) && !may_overlap(group, group.inputs[i], group.outputs[o])) {
                out.breaches.push_back(Breach::output_aliases_input);
            }
        }
        for (std::size_t other = 0; other < o; ++other) {
            if (overlap(out.outputs[o], out.outputs[other])) out.breaches.push_back(Breach::outputs_overlap);
        }
    }
}

}  // namespace

CheckedBindings check_bindings(const Group& group, const Bindings& bindings, const DeviceMemory& memory) {
    CheckedBindings out;
    check_side(group, group.inputs, bindings.inputs, memory, out.inputs, out);
    check_side(group, group.outputs, bindings.outputs, memory, out.outputs, out);
    check_overlaps(group, out);
    return out;
}

}  // namespace sim
