// Integer weights and their scales out of the blob, into panels (packed.hpp).
#pragma once

#include "microcode.hpp"

namespace sim {

// Fills panels of 32 rows, k by k, rows beyond the tensor 0. Throws EngineFault.
void gather_integers(const TensorCode& tensor, Bytes blob, std::int8_t* panels);

// Fills panels of 32 rows, group by group. Throws EngineFault for a scale that is not above 0 and finite.
void gather_scales(const TensorCode& tensor, Bytes blob, float* panels);

}  // namespace sim
