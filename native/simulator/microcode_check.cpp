#include <bit>
#include <cmath>
#include <string>

#include "fault.hpp"
#include "microcode.hpp"

namespace sim {
namespace {

constexpr std::uint32_t kMaxColumns = 1U << 20U;

class Checker {
public:
    Checker(const Microcode& code, const ContainerGroup& group)
        : code_(code), group_(group), written_(code.registers.size(), false), stored_(group.outputs.size(), false) {}

    void check(const Operation& operation, std::size_t index) {
        index_ = index;
        const auto& a = operation.args;
        switch (operation.opcode) {
            case Opcode::load: return load(a[0], a[1]);
            case Opcode::store: return store(a[0], a[1]);
            case Opcode::norm: return norm(a[0], a[1], a[2], std::bit_cast<float>(a[3]), a[4]);
            case Opcode::matmul: return matmul(a[0], a[1], a[2], a[3]);
            case Opcode::rope: return rope(a[0], a[1], a[2], a[3], a[4]);
            case Opcode::attend: return attend(operation);
            case Opcode::glu: return glu(a[0], a[1], a[2], a[3]);
            case Opcode::add: return add(a[0], a[1], a[2]);
            case Opcode::round: read(a[0]); return;
        }
    }

    void check_stored() const {
        for (std::size_t slot = 0; slot < stored_.size(); ++slot) {
            if (!stored_[slot]) throw EngineFault("microcode: output " + group_.outputs[slot].name + " is never stored");
        }
    }

private:
    [[noreturn]] void refuse(const std::string& what) const {
        throw EngineFault("microcode: operation " + std::to_string(index_) + ": " + what);
    }
    void same(const char* what, std::uint64_t expected, std::uint64_t found) const {
        if (expected != found) {
            refuse(std::string(what) + " (expected " + std::to_string(expected) + ", found " + std::to_string(found) + ")");
        }
    }
    std::uint64_t width(std::uint32_t reg) const {
        if (reg >= code_.registers.size()) refuse("no register " + std::to_string(reg));
        return code_.registers[reg];
    }
    std::uint64_t read(std::uint32_t reg) const {
        const std::uint64_t size = width(reg);
        if (!written_[reg]) refuse("register " + std::to_string(reg) + " is read before it is written");
        return size;
    }
    std::uint64_t write(std::uint32_t reg) {
        const std::uint64_t size = width(reg);
        written_[reg] = true;
        return size;
    }
    const TensorCode& tensor(std::uint32_t index) const {
        if (index >= code_.tensors.size()) refuse("no tensor " + std::to_string(index));
        return code_.tensors[index];
    }
    const IoSlot& io(const std::vector<IoSlot>& slots, std::uint32_t index, axcl::DataType type) const {
        if (index >= slots.size()) refuse("no input or output " + std::to_string(index));
        if (slots[index].type != type) refuse(slots[index].name + " is of another element type");
        return slots[index];
    }
    const IoSlot& input(std::uint32_t index) const { return io(group_.inputs, index, axcl::DataType::bf16); }

    void load(std::uint32_t dst, std::uint32_t slot) { same("elements of the input", write(dst) * code_.m, input(slot).elements); }
    void store(std::uint32_t src, std::uint32_t slot) {
        same("elements of the output", read(src) * code_.m, io(group_.outputs, slot, axcl::DataType::bf16).elements);
        stored_[slot] = true;
    }
    const TensorCode& floats(std::uint32_t index) const {
        if (!is_float(tensor(index).codec)) refuse("tensor " + std::to_string(index) + " is a vector or table of integers");
        return tensor(index);
    }
    void vector(std::uint32_t index, std::uint64_t size) const {
        same("rows of a vector", 1, floats(index).rows);
        same("elements of a vector", size, floats(index).cols);
    }
    void norm(std::uint32_t src, std::uint32_t dst, std::uint32_t weight, float eps, std::uint32_t n) {
        const std::uint64_t size = read(src);
        same("width of the destination", size, write(dst));
        vector(weight, n);
        same("values left over by groups of n", 0, size % n);
        if (!std::isfinite(eps)) refuse("eps is not finite");
    }
    void matmul(std::uint32_t src, std::uint32_t dst, std::uint32_t weight, std::uint32_t bias) {
        const TensorCode& matrix = tensor(weight);
        same("width of the source", matrix.cols, read(src));
        same("width of the destination", matrix.rows, write(dst));
        if (bias != kNoTensor) vector(bias, matrix.rows);
        if (matrix.cols > kMaxColumns) refuse("a matrix of more than 2^20 columns");
    }
    void rope(std::uint32_t reg, std::uint32_t slot, std::uint32_t cosine, std::uint32_t sine, std::uint32_t head_dim) const {
        if (head_dim == 0 || head_dim % 2 != 0) refuse("head_dim " + std::to_string(head_dim) + " is not even");
        same("values left over by heads", 0, read(reg) % head_dim);
        same("indices", code_.m, io(group_.inputs, slot, axcl::DataType::uint32).elements);
        same("columns of the cos table", head_dim / 2, floats(cosine).cols);
        same("columns of the sin table", head_dim / 2, floats(sine).cols);
        same("rows of the sin table", floats(cosine).rows, floats(sine).rows);
    }
    void attend(const Operation& operation) {
        const auto& [q, k, v, dst, k_cache, v_cache, mask, heads, kv_heads, head_dim, scale] = operation.args;
        if (heads == 0 || kv_heads == 0 || head_dim == 0 || heads % kv_heads != 0) refuse("heads are not a multiple of kv heads");
        if (head_dim > kMaxColumns) refuse("a head of more than 2^20 values");
        if (dst == q || dst == k || dst == v) refuse("attention in place");
        const std::uint64_t kv_width = std::uint64_t{kv_heads} * head_dim;
        same("width of q", std::uint64_t{heads} * head_dim, read(q));
        same("width of k", kv_width, read(k));
        same("width of v", kv_width, read(v));
        same("width of the destination", std::uint64_t{heads} * head_dim, write(dst));
        const std::uint64_t cached = kv_width * code_.history;
        if (input(k_cache).elements < cached || input(v_cache).elements < cached) refuse("caches hold fewer rows than the history");
        same("elements of the mask", std::uint64_t{code_.m} * (std::uint64_t{code_.history} + code_.m), input(mask).elements);
        if (!std::isfinite(std::bit_cast<float>(scale))) refuse("scale is not finite");
    }
    void glu(std::uint32_t gate, std::uint32_t up, std::uint32_t dst, std::uint32_t activation) {
        if (activation != 1 && activation != 2) refuse("unknown activation " + std::to_string(activation));
        add(gate, up, dst);
    }
    void add(std::uint32_t left, std::uint32_t right, std::uint32_t dst) {
        const std::uint64_t size = read(left);
        same("width of the second operand", size, read(right));
        same("width of the destination", size, write(dst));
    }

    const Microcode& code_;
    const ContainerGroup& group_;
    std::vector<bool> written_, stored_;
    std::size_t index_ = 0;
};

}  // namespace

void check_operations(const Microcode& code, const ContainerGroup& group) {
    Checker checker(code, group);
    for (std::size_t i = 0; i < code.operations.size(); ++i) checker.check(code.operations[i], i);
    checker.check_stored();
}

}  // namespace sim
