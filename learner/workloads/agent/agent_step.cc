#include "learner/workloads/agent/agent_step.h"

#include <span>
#include <utility>
#include <vector>

#include "agents/images.h"
#include "engine/graph/ops/shape_ops.h"
#include "engine/runtime/executor.h"

namespace replicant::learner {
namespace {

using graph::Output;
using replicator::ReplicaContext;

// [rows of one replica] -> [rows of all].
Output AllRows(ReplicaContext& replica, Output rows) {
  return graph::Reshape(replica.AllGather(rows), {-1});
}

}  // namespace

AgentStep BuildAgentStep(ReplicaContext& replica,
                         const replicator::Inputs& inputs,
                         const agents::Agent& agent,
                         const agents::LearningSpec& spec,
                         const graph::TensorType* frames) {
  Output table;
  if (frames != nullptr) {
    table = replica.graph().Input(kFrameTable, frames->dtype, frames->shape);
  }
  const auto batch =
      agents::TransitionBatch::From(spec, [&](const std::string& name) {
        const Output x = inputs.at(name);
        // of a batch only slots are i32
        return frames != nullptr && x.dtype() == DType::kI32
                   ? agents::GatherObservations(spec.task, table, x)
                   : x;
      });
  const agents::AgentUpdate update = agent.BuildUpdate(replica, spec, batch);
  AgentStep step;
  step.outputs.updates = update.updates;
  auto& outputs = step.outputs.values;
  for (const auto& [name, loss] : update.losses) {
    outputs.emplace_back(name, replica.AllReduce(loss, ReduceOp::kMean));
    step.losses.push_back(name);
  }
  for (const auto& [name, scalar] : update.scalars) {
    outputs.emplace_back(name, scalar);
    step.scalars.push_back(name);
  }
  outputs.emplace_back("priority", AllRows(replica, update.priority));
  for (const auto& [name, value] : update.values) {
    outputs.emplace_back(name, AllRows(replica, value));
    step.values.push_back(name);
  }
  return step;
}

std::vector<agents::TransitionTensor> ObservationSlots(
    const agents::LearningSpec& spec, int64_t rows) {
  auto tensors = agents::TransitionTensors(spec, rows);
  const size_t rank = spec.task.observation.rank();
  for (agents::TransitionTensor& tensor : tensors) {
    if (tensor.dtype != DType::kU8) continue;
    const auto all = tensor.shape.dims();
    std::vector<int64_t> dims(all.begin(),
                              all.end() - static_cast<std::ptrdiff_t>(rank));
    dims.push_back(spec.task.frame_stack);
    tensor.dtype = DType::kI32;
    tensor.shape = Shape(std::span<const int64_t>(dims));
  }
  return tensors;
}

void RunAgentStart(const agents::Agent& agent, const agents::LearningSpec& spec,
                   uint64_t seed, runtime::VariableStore& variables) {
  graph::Graph graph(seed);
  const std::vector<Output> updates = agent.BuildStart(graph, spec);
  if (updates.empty()) return;
  runtime::Executor(graph, {.outputs = {}, .updates = updates}, variables)
      .Run();
}

}  // namespace replicant::learner
