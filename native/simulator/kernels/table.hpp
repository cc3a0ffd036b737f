// Included last by each instruction set's file: everything it offers.
#pragma once

#include "attend.hpp"
#include "elementwise.hpp"
#include "matmul.hpp"

namespace sim {
namespace {

constexpr KernelTable kTable{Isa::name, Isa::tile_tokens, pack_tokens, matmul, attend, norm, rope, glu};

}  // namespace
}  // namespace sim
