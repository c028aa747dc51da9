#include "engine/runtime/schedule.h"

#include <fmt/format.h>

#include <functional>
#include <map>
#include <queue>

#include "base/error.h"

namespace replicant::runtime {
namespace {

using graph::Endpoint;
using graph::Graph;
using graph::Node;
using graph::NodeId;

// after[n]: nodes that must run after node n, once per reason.
struct Constraints {
  explicit Constraints(const Graph& graph)
      : after(graph.nodes().size()), num_before(graph.nodes().size(), 0) {
    std::map<Endpoint, std::vector<NodeId>> users;
    for (const Node& node : graph.nodes()) {
      for (const Endpoint& input : node.inputs) {
        Add(input.node, node.id);
        users[input].push_back(node.id);
      }
    }
    for (const Node& node : graph.nodes()) {
      for (size_t i = 0; i < node.updates.size(); ++i) {
        for (const NodeId user : users[node.inputs[i]]) {
          if (user != node.id) Add(user, node.id);
        }
      }
    }
  }

  void Add(NodeId first, NodeId then) {
    after[static_cast<size_t>(first)].push_back(then);
    ++num_before[static_cast<size_t>(then)];
  }

  std::vector<std::vector<NodeId>> after;
  std::vector<int> num_before;
};

[[noreturn]] void FailOnCycle(const Graph& graph,
                              const std::vector<int>& num_before) {
  for (const Node& node : graph.nodes()) {
    if (num_before[static_cast<size_t>(node.id)] == 0 || node.updates.empty()) {
      continue;
    }
    throw InvalidArgument(fmt::format(
        "{}: {} '{}' replaces variable '{}', but a node needs both the old and "
        "the new value; hint: take Identity() of the old value",
        node.site.ToString(), node.op->name, node.name,
        graph.variable(node.updates[0]).name));
  }
  throw InvalidArgument("ScheduleNodes: the graph has a cycle");
}

// An update of several variables goes through them one after the other, so it
// must not read a version that it has replaced by then.
void CheckNoUpdateReadsWhatItReplaces(const Graph& graph, const Node& node) {
  const size_t count = node.updates.size();
  if (count < 2) return;
  for (size_t j = count; j < node.inputs.size(); ++j) {
    for (size_t i = 0; i < count; ++i) {
      if (node.inputs[j] != node.inputs[i]) continue;
      throw InvalidArgument(fmt::format(
          "{}: {} '{}' replaces variable '{}' and also takes its old value as "
          "input {}; hint: take Identity() of the old value",
          node.site.ToString(), node.op->name, node.name,
          graph.variable(node.updates[i]).name, j));
    }
  }
}

}  // namespace

std::vector<NodeId> ScheduleNodes(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    CheckNoUpdateReadsWhatItReplaces(graph, node);
  }
  Constraints constraints(graph);
  std::priority_queue<NodeId, std::vector<NodeId>, std::greater<>> ready;
  for (const Node& node : graph.nodes()) {
    if (constraints.num_before[static_cast<size_t>(node.id)] == 0) {
      ready.push(node.id);
    }
  }
  std::vector<NodeId> order;
  while (!ready.empty()) {
    const NodeId id = ready.top();
    ready.pop();
    order.push_back(id);
    for (const NodeId next : constraints.after[static_cast<size_t>(id)]) {
      if (--constraints.num_before[static_cast<size_t>(next)] == 0) {
        ready.push(next);
      }
    }
  }
  if (order.size() != graph.nodes().size()) {
    FailOnCycle(graph, constraints.num_before);
  }
  return order;
}

}  // namespace replicant::runtime
