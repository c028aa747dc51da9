#include "engine/runtime/memory_planner.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace replicant::runtime {
namespace {

size_t RoundUp(size_t size, size_t alignment) {
  return (size + alignment - 1) / alignment * alignment;
}

bool MeetInTime(const Lifetime& a, const Lifetime& b) {
  return a.first_step <= b.last_step && b.first_step <= a.last_step;
}

// The largest sum of sizes alive at one step.
size_t LowerBound(std::span<const Lifetime> blocks, size_t alignment) {
  // the sum can only rise where a block begins
  size_t bound = 0;
  for (const Lifetime& at : blocks) {
    size_t sum = 0;
    for (const Lifetime& block : blocks) {
      if (block.first_step <= at.first_step &&
          at.first_step <= block.last_step) {
        sum += RoundUp(block.size_bytes, alignment);
      }
    }
    bound = std::max(bound, sum);
  }
  return bound;
}

struct Placed {
  size_t begin;
  size_t end;
  Lifetime lifetime;
};

// The lowest offset at which `size` bytes overlap no block of `placed` (sorted
// by begin) that lives at the same time.
size_t LowestOffset(const std::vector<Placed>& placed, const Lifetime& block,
                    size_t size) {
  size_t offset = 0;
  for (const Placed& other : placed) {
    if (!MeetInTime(other.lifetime, block)) continue;
    if (offset + size <= other.begin) break;
    offset = std::max(offset, other.end);
  }
  return offset;
}

}  // namespace

MemoryPlan PlanMemory(std::span<const Lifetime> blocks, size_t alignment) {
  MemoryPlan plan;
  plan.offsets.assign(blocks.size(), 0);
  for (const Lifetime& block : blocks) {
    REPLICANT_CHECK_LE(block.first_step, block.last_step);
    plan.unshared_size_bytes += RoundUp(block.size_bytes, alignment);
  }
  plan.lower_bound_bytes = LowerBound(blocks, alignment);

  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return blocks[a].size_bytes > blocks[b].size_bytes;
  });
  std::vector<Placed> placed;
  for (const size_t i : order) {
    const size_t size = RoundUp(blocks[i].size_bytes, alignment);
    if (size == 0) continue;
    const size_t offset = LowestOffset(placed, blocks[i], size);
    plan.offsets[i] = offset;
    plan.arena_size_bytes = std::max(plan.arena_size_bytes, offset + size);
    const Placed entry{offset, offset + size, blocks[i]};
    placed.insert(std::upper_bound(placed.begin(), placed.end(), entry,
                                   [](const Placed& a, const Placed& b) {
                                     return a.begin < b.begin;
                                   }),
                  entry);
  }
  return plan;
}

}  // namespace replicant::runtime
