#include "replicator/calls/partition.h"

#include <map>
#include <memory>
#include <set>
#include <utility>

#include "base/check.h"
#include "engine/graph/ops/optimizer.h"
#include "engine/graph/passes/rewriter.h"
#include "replicator/calls/transfers.h"

namespace replicant::replicator {
namespace {

using graph::Endpoint;
using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Output;
using graph::Program;
using graph::Rewriter;

class Partitioner {
 public:
  Partitioner(const Program& program, int num_devices)
      : program_(program), graph_(*program.graph) {
    for (int i = 0; i < num_devices; ++i) {
      devices_.push_back(std::make_unique<Device>(graph_));
    }
    PlaceNodes();
  }

  PartitionedProgram Run() {
    for (const Node& node : graph_.nodes()) {
      const std::vector<size_t> places = PlacesOf(node);
      if (places.size() == 1) {
        CopyTo(node, places[0]);
      } else {
        SplitUpdate(node, places);
      }
    }
    return Finish();
  }

 private:
  struct Device {
    explicit Device(const Graph& graph) : rewriter(graph) {}

    Rewriter rewriter;
    // endpoints of the source that this device has
    std::set<Endpoint> known;
    std::vector<Output> updates;
    Output token;
  };

  void PlaceNodes() {
    for (const Node& node : graph_.nodes()) {
      device_of_.push_back(
          node.op == &graph::InputOp() ? 0 : static_cast<size_t>(node.device));
      REPLICANT_CHECK_LT(device_of_.back(), devices_.size());
    }
    for (const Node& node : graph_.nodes()) {
      if (node.updates.empty()) continue;
      if (!graph::IsGroupedUpdate(node)) {
        // on the device of its variable
        device_of_[static_cast<size_t>(node.id)] = DeviceOf(node.inputs[0]);
        continue;
      }
      // slots, on the device of their parameter
      const auto count = static_cast<size_t>(node.attributes.Int("count"));
      for (size_t i = count; i < node.updates.size(); ++i) {
        const Endpoint slot = node.inputs[i];
        if (graph_.node(slot.node).op != &graph::VariableOp()) continue;
        device_of_[static_cast<size_t>(slot.node)] =
            DeviceOf(node.inputs[i % count]);
      }
    }
  }

  size_t DeviceOf(Endpoint endpoint) const {
    const auto split = split_outputs_.find(endpoint);
    return split == split_outputs_.end()
               ? device_of_[static_cast<size_t>(endpoint.node)]
               : split->second;
  }

  // A grouped update is divided by element of its groups; any other stays where
  // its node is.
  std::vector<size_t> PlacesOf(const Node& node) const {
    if (!graph::IsGroupedUpdate(node))
      return {device_of_[static_cast<size_t>(node.id)]};
    std::set<size_t> places;
    for (int64_t i = 0; i < node.attributes.Int("count"); ++i) {
      places.insert(DeviceOf(node.inputs[static_cast<size_t>(i)]));
    }
    return {places.begin(), places.end()};
  }

  Output Token(Device& device, graph::CallSite site) {
    if (!device.token.is_valid()) {
      device.token = device.rewriter.graph().Scalar(0.0, DType::kU8, site);
    }
    return device.token;
  }

  // Transfers the endpoint to the device unless it is there.
  void Bring(Endpoint endpoint, size_t to, graph::CallSite site) {
    Device& receiver = *devices_[to];
    if (receiver.known.contains(endpoint)) return;
    const Node& producer = graph_.node(endpoint.node);
    if (producer.op == &graph::ConstantOp()) {
      CopyTo(producer, to);
      return;
    }
    Device& sender = *devices_[DeviceOf(endpoint)];
    const int64_t channel = num_channels_++;
    sender.token = AddSend(sender.rewriter.Mapped(endpoint),
                           Token(sender, site), channel, site);
    const Output received =
        AddReceive(graph_.type(endpoint), Token(receiver, site), channel, site);
    receiver.token = Graph::OutputOf(received, 1);
    receiver.rewriter.Map(endpoint, received);
    receiver.known.insert(endpoint);
  }

  void CopyTo(const Node& node, size_t place) {
    Device& device = *devices_[place];
    for (const Endpoint& input : node.inputs) Bring(input, place, node.site);
    const Output first = device.rewriter.Copy(node);
    for (int32_t i = 0; i < static_cast<int32_t>(node.outputs.size()); ++i) {
      device.known.insert({node.id, i});
    }
    if (!node.updates.empty()) device.updates.push_back(first);
  }

  // One update for the elements of each device.
  void SplitUpdate(const Node& node, const std::vector<size_t>& places) {
    const auto count = static_cast<size_t>(node.attributes.Int("count"));
    const auto groups = static_cast<size_t>(node.attributes.Int("groups"));
    for (const size_t place : places) {
      std::vector<size_t> elements;
      for (size_t i = 0; i < count; ++i) {
        if (DeviceOf(node.inputs[i]) == place) elements.push_back(i);
      }
      std::vector<size_t> kept;
      kept.reserve(node.inputs.size());
      for (size_t group = 0; group < groups; ++group) {
        for (const size_t i : elements) kept.push_back(group * count + i);
      }
      for (size_t i = groups * count; i < node.inputs.size(); ++i) {
        kept.push_back(i);
      }
      Device& device = *devices_[place];
      Graph::NodeSpec spec{
          .op = node.op, .attributes = node.attributes, .name = node.name};
      spec.attributes.Set("count", static_cast<int64_t>(elements.size()));
      for (const size_t i : kept) {
        Bring(node.inputs[i], place, node.site);
        spec.inputs.push_back(device.rewriter.Mapped(node.inputs[i]));
        if (i < node.updates.size()) spec.updates.push_back(node.updates[i]);
      }
      const auto num_updates = static_cast<int>(spec.updates.size());
      const Output first =
          device.rewriter.graph().Add(std::move(spec), node.site);
      for (int k = 0; k < num_updates; ++k) {
        const Endpoint version{
            node.id, static_cast<int32_t>(kept[static_cast<size_t>(k)])};
        device.rewriter.Map(version, Graph::OutputOf(first, k));
        device.known.insert(version);
        split_outputs_[version] = place;
      }
      device.updates.push_back(first);
    }
  }

  PartitionedProgram Finish() {
    PartitionedProgram result;
    std::vector<std::vector<Output>> outputs(devices_.size());
    for (const Output& output : program_.outputs) {
      const size_t place = DeviceOf(output.endpoint());
      result.outputs.push_back({place, outputs[place].size()});
      outputs[place].push_back(output);
    }
    for (size_t i = 0; i < devices_.size(); ++i) {
      Device& device = *devices_[i];
      Program program = device.rewriter.Finish(outputs[i], {});
      program.updates = device.updates;
      // nobody reads the token, but it keeps the transfers before it
      if (device.token.is_valid()) program.outputs.push_back(device.token);
      result.devices.push_back(std::move(program));
    }
    result.num_channels = num_channels_;
    return result;
  }

  const Program& program_;
  const Graph& graph_;
  std::vector<std::unique_ptr<Device>> devices_;
  // by node
  std::vector<size_t> device_of_;
  // the devices of the new versions of a split update
  std::map<Endpoint, size_t> split_outputs_;
  int64_t num_channels_ = 0;
};

}  // namespace

PartitionedProgram Partition(Program program, int num_devices) {
  if (num_devices > 1) return Partitioner(program, num_devices).Run();
  PartitionedProgram whole;
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    whole.outputs.push_back({0, i});
  }
  whole.devices.push_back(std::move(program));
  return whole;
}

}  // namespace replicant::replicator
