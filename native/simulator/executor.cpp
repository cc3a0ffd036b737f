#include "executor.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "elementwise.hpp"

namespace sim {
namespace {

// Values of one task of an elementwise operation: below this a second thread costs more than it saves.
constexpr std::size_t kTaskValues = 16384;
constexpr std::size_t kTasksPerThread = 4;

std::size_t count_registers(const Microcode& code) {
    std::size_t values = 0;
    for (const std::uint32_t width : code.registers) values += std::size_t{width} * code.m;
    return values;
}

Weights weights_of(const Packed& w) {
    return !is_float(w.codec) ? Weights::int8 : w.codec == Codec::fp32 ? Weights::fp32 : Weights::bf16;
}

// The dimensions of an ATTEND; who executes it adds the data.
Attend attend_job(const Group& group, const Operation& operation) {
    Attend job{};
    job.m = group.code.m;
    job.history = group.code.history;
    job.heads = operation.args[7];
    job.kv_heads = operation.args[8];
    job.head_dim = operation.args[9];
    job.scale = std::bit_cast<float>(operation.args[10]);
    return job;
}

}  // namespace

struct Executor::Call {
    const Group& group;
    const std::vector<const std::byte*>& inputs;
    const std::vector<std::byte*>& outputs;
    std::vector<float*> registers;

    std::size_t m() const { return group.code.m; }
    std::size_t width(std::uint32_t reg) const { return group.code.registers[reg]; }
    float* reg(std::uint32_t index) const { return registers[index]; }
    const float* floats(std::uint32_t tensor) const { return group.tensors[tensor]->floats(); }
    const std::uint16_t* halves(std::uint32_t input) const { return reinterpret_cast<const std::uint16_t*>(inputs[input]); }
};

double* Executor::scratch(std::size_t doubles) {
    if (doubles > scratch_size_) {
        scratch_size_ = 0;
        scratch_.reset();
        scratch_ = make_aligned<double>(doubles);
        scratch_size_ = doubles;
    }
    return scratch_.get();
}

std::size_t Executor::scratch_of(const Group& group, const Operation& operation) const {
    if (operation.opcode == Opcode::matmul) {
        const Packed& w = *group.tensors[operation.args[2]];
        return Tokens{nullptr, group.code.m, w.cols}.doubles(weights_of(w));
    }
    if (operation.opcode != Opcode::attend) return 0;
    const Attend job = attend_job(group, operation);
    return job.scratch() * std::min(threads(), job.chunks() * job.kv_heads);
}

void Executor::reserve(const Group& group) {
    const std::size_t values = count_registers(group.code);
    if (registers_.size() < values) registers_.resize(values);
    for (const Operation& operation : group.code.operations) scratch(scratch_of(group, operation));
}

void Executor::each_token(std::size_t tokens, std::size_t width, const std::function<void(std::size_t, std::size_t)>& work) {
    const std::size_t step = std::max<std::size_t>(1, kTaskValues / width);
    pool_.run((tokens + step - 1) / step, [&](std::size_t task, std::size_t) {
        work(task * step, std::min(tokens, (task + 1) * step));
    });
}

void Executor::load(const Call& call, const Operation& operation) {
    const std::uint32_t dst = operation.args[0], slot = operation.args[1];
    widen_bf16(call.halves(slot), call.reg(dst), call.m() * call.width(dst));
}

void Executor::store(const Call& call, const Operation& operation) {
    const std::uint32_t src = operation.args[0], slot = operation.args[1];
    // Measured on the card: groups of several tokens but fewer than 64 never write `output`.
    if (call.group.code.kind == Kind::layer && call.m() > 1 && call.m() < 64 && is_named(call.group.outputs[slot], "output")) return;
    narrow_bf16(call.reg(src), reinterpret_cast<std::uint16_t*>(call.outputs[slot]), call.m() * call.width(src));
}

void Executor::norm(const Call& call, const Operation& operation) {
    const auto& a = operation.args;
    const Norm job{call.reg(a[0]), call.reg(a[1]), call.floats(a[2]), std::bit_cast<float>(a[3]), a[4], call.width(a[0])};
    each_token(call.m(), job.width, [&](std::size_t first, std::size_t last) { kernels_.norm(job, first, last); });
}

void Executor::matmul(const Call& call, const Operation& operation) {
    const auto& a = operation.args;
    const Packed& w = *call.group.tensors[a[2]];
    const Weights weights = weights_of(w);
    Tokens x{nullptr, call.m(), w.cols};
    x.x = scratch(x.doubles(weights));
    const std::size_t tile = kernels_.tile_tokens;
    pool_.run((x.tokens + tile - 1) / tile, [&](std::size_t task, std::size_t) {
        kernels_.pack_tokens(weights, call.reg(a[0]), x, task * tile, std::min(x.tokens, (task + 1) * tile));
    });
    const float* const bias = a[3] == kNoTensor ? nullptr : call.floats(a[3]);
    const Matmul job{w.data.get(), weights, w.scales(), w.group, w.rows, x, bias, call.reg(a[1])};
    const std::size_t panels = (w.rows + kPanelRows - 1) / kPanelRows;
    // Four panels are what the one-token kernels take at once.
    const std::size_t step = (panels + 4 * kTasksPerThread * threads() - 1) / (4 * kTasksPerThread * threads()) * 4;
    pool_.run((panels + step - 1) / step, [&](std::size_t task, std::size_t) {
        kernels_.matmul(job, task * step, std::min(panels, (task + 1) * step));
    });
}

std::size_t Executor::rope(const Call& call, const Operation& operation) {
    const auto& a = operation.args;
    const Packed& cosine = *call.group.tensors[a[2]];
    const Rope job{call.reg(a[0]), reinterpret_cast<const std::uint32_t*>(call.inputs[a[1]]), cosine.floats(),
                   call.floats(a[3]), cosine.rows, a[4], call.width(a[0])};
    each_token(call.m(), job.width, [&](std::size_t first, std::size_t last) { kernels_.rope(job, first, last); });
    return static_cast<std::size_t>(std::count_if(job.indices, job.indices + call.m(), [&](auto i) { return i >= job.positions; }));
}

void Executor::attend(const Call& call, const Operation& operation) {
    const auto& a = operation.args;
    Attend job = attend_job(call.group, operation);
    job.q = call.reg(a[0]);
    job.k = call.reg(a[1]);
    job.v = call.reg(a[2]);
    job.out = call.reg(a[3]);
    job.k_cache = call.halves(a[4]);
    job.v_cache = call.halves(a[5]);
    job.mask = call.halves(a[6]);
    const std::size_t room = job.scratch(), chunks = job.chunks(), tasks = chunks * job.kv_heads;
    double* memory = scratch(room * std::min(threads(), tasks));
    pool_.run(tasks, [&](std::size_t task, std::size_t worker) {
        const std::size_t first = task % chunks * kQueryChunk;
        double* const own = memory + (tasks < threads() ? task : worker) * room;
        kernels_.attend(job, task / chunks, first, std::min(job.queries(), first + kQueryChunk), own);
    });
}

void Executor::glu(const Call& call, const Operation& operation) {
    const auto& a = operation.args;
    const std::size_t width = call.width(a[2]);
    const auto activation = static_cast<Activation>(a[3]);
    each_token(call.m(), width, [&](std::size_t first, std::size_t last) {
        const std::size_t at = first * width;
        kernels_.glu(activation, call.reg(a[0]) + at, call.reg(a[1]) + at, call.reg(a[2]) + at, (last - first) * width);
    });
}

void Executor::add(const Call& call, const Operation& operation) {
    const auto& a = operation.args;
    add_floats(call.reg(a[0]), call.reg(a[1]), call.reg(a[2]), call.m() * call.width(a[2]));
}

void Executor::round(const Call& call, const Operation& operation) {
    const std::uint32_t reg = operation.args[0];
    round_floats(call.reg(reg), call.m() * call.width(reg));
}

std::size_t Executor::execute(const Call& call, const Operation& operation) {
    switch (operation.opcode) {
        case Opcode::load: load(call, operation); break;
        case Opcode::store: store(call, operation); break;
        case Opcode::norm: norm(call, operation); break;
        case Opcode::matmul: matmul(call, operation); break;
        case Opcode::rope: return rope(call, operation);
        case Opcode::attend: attend(call, operation); break;
        case Opcode::glu: glu(call, operation); break;
        case Opcode::add: add(call, operation); break;
        case Opcode::round: round(call, operation); break;
    }
    return 0;
}

std::size_t Executor::run(const Group& group, const std::vector<const std::byte*>& inputs,
                          const std::vector<std::byte*>& outputs) {
    Call call{group, inputs, outputs, {}};
    if (const std::size_t values = count_registers(group.code); registers_.size() < values) registers_.resize(values);
    float* next = registers_.data();
    for (const std::uint32_t width : group.code.registers) {
        call.registers.push_back(next);
        next += std::size_t{width} * group.code.m;
    }
    std::size_t beyond = 0;
    for (const Operation& operation : group.code.operations) beyond += execute(call, operation);
    return beyond;
}

}  // namespace sim
