#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace replicant::runtime {

// A block of memory that a plan needs from one step to another, both included.
struct Lifetime {
  size_t size_bytes = 0;
  int32_t first_step = 0;
  int32_t last_step = 0;
};

struct MemoryPlan {
  // Offset of each block within the arena, by its number; a multiple of the
  // alignment. Blocks whose lifetimes meet do not overlap.
  std::vector<size_t> offsets;
  size_t arena_size_bytes = 0;
  // Total size of the blocks without sharing.
  size_t unshared_size_bytes = 0;
  // The largest sum of blocks alive at one step: no plan can be smaller.
  size_t lower_bound_bytes = 0;
};

// Packs blocks into one arena: the largest first, each at the lowest offset
// where it meets no block that lives at the same time. O(n^2 log n) in blocks.
//
// Source: "greedy by size" of Pisarchyk and Lee, "Efficient Memory Management
// for Deep Neural Net Inference" (arXiv:2001.03288), section 5.2.
//
// A block of size 0 gets offset 0. Requires first_step <= last_step (checked).
MemoryPlan PlanMemory(std::span<const Lifetime> blocks, size_t alignment);

}  // namespace replicant::runtime
