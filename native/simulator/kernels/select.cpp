#include "kernels.hpp"

namespace sim {

std::vector<const KernelTable*> available_kernels() {
    std::vector<const KernelTable*> tables;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")) tables.push_back(&avx512_kernels());
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) tables.push_back(&avx2_kernels());
#elif defined(__aarch64__)
    tables.push_back(&neon_kernels());
#endif
    tables.push_back(&generic_kernels());
    return tables;
}

const KernelTable* find_kernels(std::string_view name) {
    for (const KernelTable* table : available_kernels()) {
        if (name.empty() || name == table->name) return table;
    }
    return nullptr;
}

}  // namespace sim
