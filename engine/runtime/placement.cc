#include "engine/runtime/placement.h"

namespace replicant::runtime {

using graph::Endpoint;
using graph::Node;
using graph::NodeId;
using graph::Output;
using kernels::Kernel;

namespace {

constexpr size_t kAlignment = kernels::Backend::kAlignment;

size_t RoundUp(size_t size) {
  return (size + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

Placement::Placement(const graph::Program& program,
                     const std::vector<NodeId>& order,
                     const std::map<NodeId, std::unique_ptr<Kernel>>& kernels,
                     const std::function<bool(const std::string&)>& is_resident)
    : graph_(*program.graph), order_(order), kernels_(kernels) {
  FindLastUses();
  for (const Node& node : graph_.nodes()) {
    if (node.op != &graph::InputOp()) continue;
    if (is_resident(node.name)) {
      places_[{node.id, 0}] = {Place::Kind::kResident};
    } else {
      PlaceAtBoundary({node.id, 0});
    }
  }
  input_size_ = boundary_size_;
  for (const Output& output : program.outputs) {
    PlaceAtBoundary(output.endpoint());
  }
  for (size_t step = 0; step < order.size(); ++step) {
    PlaceOutputs(graph_.node(order[step]), static_cast<int32_t>(step));
  }
  memory_ = PlanMemory(blocks_, kAlignment);
}

void Placement::FindLastUses() {
  for (size_t step = 0; step < order_.size(); ++step) {
    for (const Endpoint& input : graph_.node(order_[step]).inputs) {
      last_use_[input] = static_cast<int32_t>(step);
    }
  }
}

size_t Placement::SizeOf(Endpoint endpoint) const {
  return graph_.type(endpoint).SizeBytes();
}

void Placement::PlaceAtBoundary(Endpoint endpoint) {
  if (places_.contains(endpoint)) return;
  places_[endpoint] = {Place::Kind::kBoundary, boundary_size_};
  boundary_size_ += RoundUp(SizeOf(endpoint));
}

void Placement::PlaceOutputs(const Node& node, int32_t step) {
  for (int32_t i = 0; i < static_cast<int32_t>(node.outputs.size()); ++i) {
    const Endpoint endpoint{node.id, i};
    if (node.op == &graph::ConstantOp()) {
      places_[endpoint] = {Place::Kind::kConstant, constant_size_};
      constant_size_ += RoundUp(SizeOf(endpoint));
    } else if (node.op == &graph::VariableOp()) {
      places_[endpoint] = {
          Place::Kind::kVariable, 0,
          static_cast<graph::VariableId>(node.attributes.Int("variable"))};
    } else if (static_cast<size_t>(i) < node.updates.size()) {
      places_[endpoint] = {Place::Kind::kVariable, 0,
                           node.updates[static_cast<size_t>(i)]};
    } else if (!places_.contains(endpoint)) {
      PlaceInArena(endpoint, node, step);
    }
  }
}

void Placement::PlaceInArena(Endpoint endpoint, const Node& node,
                             int32_t step) {
  const Kernel& kernel = *kernels_.at(node.id);
  const auto found = last_use_.find(endpoint);
  const int32_t last = found == last_use_.end() ? step : found->second;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Endpoint input = node.inputs[i];
    const Place place = places_.at(input);
    if (place.kind != Place::Kind::kArena ||
        !kernel.CanShare(static_cast<int>(i), endpoint.index) ||
        SizeOf(input) != SizeOf(endpoint)) {
      continue;
    }
    Lifetime& block = blocks_[place.position];
    // taken once only: `last` is beyond this step, so that a second output
    // finds the block in use
    if (last == step || block.last_step != step) continue;
    block.last_step = last;
    places_[endpoint] = place;
    return;
  }
  places_[endpoint] = {Place::Kind::kArena, blocks_.size()};
  blocks_.push_back(
      {.size_bytes = SizeOf(endpoint), .first_step = step, .last_step = last});
}

}  // namespace replicant::runtime
