#pragma once

#include <functional>
#include <vector>

#include "engine/graph/graph.h"

namespace replicant::graph {

// Changes to the graphs of one of several processes that run the same program
// (replicator::Distribute()). A lone process has none.
struct ProcessHooks {
  // The part of an input that this process takes; one of one: all of it.
  std::function<InputPart(const Shape&)> part_of_input;
  // The mean over all processes of the gradients of an optimizer (engine/nn).
  std::function<std::vector<Output>(const std::vector<Output>&)> mean_gradients;
};

// Null for none. Set before graphs are built, and outlives them.
// Thread-safety: set by one thread, while no other one builds graphs.
const ProcessHooks* ProcessHooksInForce();
void SetProcessHooks(const ProcessHooks* hooks);

}  // namespace replicant::graph
