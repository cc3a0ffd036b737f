// Runs the program of one shape group on device memory that the caller has checked.
#pragma once

#include <cstddef>
#include <vector>

#include "engine.hpp"
#include "kernels/kernels.hpp"
#include "pool.hpp"

namespace sim {

class Executor {
public:
    Executor(const KernelTable& kernels, unsigned threads) : kernels_(kernels), pool_(threads) {}

    // One call at a time. `inputs` and `outputs` point at buffers of the group's declared sizes.
    // Returns how many positions lay beyond the RoPE tables (their rows are NaN).
    std::size_t run(const Group& group, const std::vector<const std::byte*>& inputs, const std::vector<std::byte*>& outputs);

    // Takes the memory that calls of this group need, so that none of them has to. Throws std::bad_alloc.
    void reserve(const Group& group);

    std::size_t threads() const { return pool_.size(); }

private:
    struct Call;

    void load(const Call& call, const Operation& operation);
    void store(const Call& call, const Operation& operation);
    void norm(const Call& call, const Operation& operation);
    void matmul(const Call& call, const Operation& operation);
    std::size_t rope(const Call& call, const Operation& operation);
    void attend(const Call& call, const Operation& operation);
    void glu(const Call& call, const Operation& operation);
    void add(const Call& call, const Operation& operation);
    void round(const Call& call, const Operation& operation);
    std::size_t execute(const Call& call, const Operation& operation);

    void each_token(std::size_t tokens, std::size_t width, const std::function<void(std::size_t, std::size_t)>& work);
    std::size_t scratch_of(const Group& group, const Operation& operation) const;
    double* scratch(std::size_t doubles);

    const KernelTable& kernels_;
    ThreadPool pool_;
    std::vector<float> registers_;
    Aligned<double> scratch_;
    std::size_t scratch_size_ = 0;
};

}  // namespace sim
