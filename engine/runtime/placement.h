#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/graph/graph.h"
#include "engine/graph/passes/passes.h"
#include "engine/kernels/backend.h"
#include "engine/runtime/memory_planner.h"

namespace replicant::runtime {

// The place of a tensor in memory.
struct Place {
  enum class Kind { kArena, kBoundary, kConstant, kVariable, kResident };

  Kind kind = Kind::kArena;
  // number of the block, or offset within the boundary or constant buffer
  size_t position = 0;
  graph::VariableId variable = -1;
};

// Decides where every tensor of a scheduled program lies. Inputs and fetched
// outputs lie at the boundary, constants and variables in separate buffers, and
// all other tensors in one arena, whose blocks PlanMemory() reuses when the
// last reader of a tensor has run. A kernel that allows it writes its output
// over an input that no later kernel reads.
class Placement {
 public:
  // `program`, `order` and `kernels` must outlive the placement. The inputs
  // that `is_resident` names are elsewhere.
  Placement(
      const graph::Program& program, const std::vector<graph::NodeId>& order,
      const std::map<graph::NodeId, std::unique_ptr<kernels::Kernel>>& kernels,
      const std::function<bool(const std::string& input)>& is_resident);

  const Place& of(graph::Endpoint endpoint) const {
    return places_.at(endpoint);
  }
  size_t ArenaOffset(const Place& place) const {
    return memory_.offsets[place.position];
  }
  const MemoryPlan& memory() const { return memory_; }
  // The inputs come first in the boundary buffer.
  size_t boundary_size_bytes() const { return boundary_size_; }
  size_t input_size_bytes() const { return input_size_; }
  size_t constant_size_bytes() const { return constant_size_; }

 private:
  void FindLastUses();
  size_t SizeOf(graph::Endpoint endpoint) const;
  void PlaceAtBoundary(graph::Endpoint endpoint);
  void PlaceOutputs(const graph::Node& node, int32_t step);
  // Takes the memory of an input that no later kernel reads, or a new block.
  void PlaceInArena(graph::Endpoint endpoint, const graph::Node& node,
                    int32_t step);

  const graph::Graph& graph_;
  const std::vector<graph::NodeId>& order_;
  const std::map<graph::NodeId, std::unique_ptr<kernels::Kernel>>& kernels_;
  std::map<graph::Endpoint, int32_t> last_use_;
  std::map<graph::Endpoint, Place> places_;
  std::vector<Lifetime> blocks_;
  MemoryPlan memory_;
  size_t boundary_size_ = 0;
  size_t input_size_ = 0;
  size_t constant_size_ = 0;
};

}  // namespace replicant::runtime
