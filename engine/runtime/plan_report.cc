#include "engine/runtime/plan_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include "engine/runtime/placement.h"

namespace replicant::runtime {

using graph::Node;
using graph::NodeId;

namespace {

constexpr size_t kNumLargestTensors = 10;
// of a message
constexpr size_t kNumTold = 3;

}  // namespace

std::string PlanReport::ToString() const {
  return fmt::format(
      "plan: {} nodes, {} kernels, peak {} bytes (intermediate {} of {} "
      "unshared, lower bound {}; scratch {}, constants {}, boundary {}), "
      "variables {} bytes{}",
      num_nodes, num_kernels, peak_size_bytes(), memory.arena_size_bytes,
      memory.unshared_size_bytes, memory.lower_bound_bytes, scratch_size_bytes,
      constant_size_bytes, boundary_size_bytes, variable_size_bytes,
      ResidentText());
}

std::string PlanReport::ResidentText() const {
  return resident_size_bytes == 0
             ? ""
             : fmt::format(", resident inputs {} bytes", resident_size_bytes);
}

std::string PlanReport::LargestTensors() const {
  std::vector<std::string> texts;
  for (const PlannedTensor& tensor : largest_tensors) {
    if (texts.size() == kNumTold) break;
    texts.push_back(fmt::format("{} {} {} bytes", tensor.name,
                                tensor.type.ToString(), tensor.size_bytes));
  }
  return texts.empty() ? "none" : fmt::format("{}", fmt::join(texts, ", "));
}

void DescribeMemory(const graph::Graph& graph, const std::vector<NodeId>& order,
                    const Placement& placement, PlanReport* report) {
  report->memory = placement.memory();
  report->boundary_size_bytes = placement.boundary_size_bytes();
  report->constant_size_bytes = placement.constant_size_bytes();
  report->least_bytes = placement.boundary_size_bytes();
  std::vector<PlannedTensor>& tensors = report->largest_tensors;
  for (const NodeId id : order) {
    const Node& node = graph.node(id);
    for (int32_t i = 0; i < static_cast<int32_t>(node.outputs.size()); ++i) {
      const graph::TensorType& type = node.outputs[static_cast<size_t>(i)];
      const size_t size = type.SizeBytes();
      const Place::Kind kind = placement.of({id, i}).kind;
      // read as a leaf, and written as the output of an update
      if (kind == Place::Kind::kVariable) report->least_bytes += size;
      if (kind == Place::Kind::kArena)
        tensors.push_back({node.name, type, size});
    }
  }
  std::ranges::stable_sort(tensors, std::ranges::greater(),
                           &PlannedTensor::size_bytes);
  if (tensors.size() > kNumLargestTensors) {
    tensors.erase(tensors.begin() + kNumLargestTensors, tensors.end());
  }
}

}  // namespace replicant::runtime
