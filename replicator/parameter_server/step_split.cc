#include "replicator/parameter_server/step_split.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "base/error.h"
#include "engine/graph/ops/state.h"
#include "replicator/calls/agreement.h"
#include "replicator/calls/collective_ops.h"

// How a step is divided.
//
// Every node has a Source, found from its inputs in one pass over the graph: it
// depends on constants, on variables, on the batch of one replica, on results
// of primitives, or on results and variables together. Workers compute the
// nodes that need the batch and the results themselves; servers compute the
// rest. A result that a server's node reads is cut off there: the worker
// pushes it, and the servers' program has an input in its place. An update by
// the servers must not feed a gradient or a value of the same step, because the
// worker would have to wait for it in the middle.
//
// Sharding then joins the variables that one update needs together into groups
// (union-find) and deals the groups out to servers, the largest first.
namespace replicant::replicator {
namespace {

using graph::Endpoint;
using graph::Node;
using graph::NodeId;
using graph::VariableSpec;

// What a node is computed from.
enum class Source {
  kConstants,
  kVariables,  //  constants, perhaps
  kBatch,      //  the values of one replica
  kReduced,    //  results of primitives, and constants
  kServers,    //  both of these and variables
};

Source SourceOf(const Node& node, bool is_local,
                const std::vector<Source>& sources) {
  if (is_local) return Source::kBatch;
  if (PrimitiveOf(node) != Primitive::kNone) return Source::kReduced;
  if (node.op == &graph::VariableOp()) return Source::kVariables;
  bool has_variables = false;
  bool has_reduced = false;
  for (const Endpoint& input : node.inputs) {
    const Source source = sources[static_cast<size_t>(input.node)];
    has_variables |= source == Source::kVariables || source == Source::kServers;
    has_reduced |= source == Source::kReduced || source == Source::kServers;
  }
  if (has_variables && has_reduced) return Source::kServers;
  if (has_reduced) return Source::kReduced;
  return has_variables ? Source::kVariables : Source::kConstants;
}

const std::string& VariableName(const Graph& graph, const Node& node) {
  return graph
      .variable(static_cast<VariableId>(node.attributes.Int("variable")))
      .name;
}

bool IsPerReplica(const VariableSpec& spec) {
  return !spec.is_trainable &&
         spec.agreement == graph::ReplicaAgreement::kPerReplica;
}

std::vector<Output> OutputsOf(const StepOutputs& outputs) {
  std::vector<Output> list;
  list.reserve(outputs.values.size());
  for (const auto& [name, output] : outputs.values) list.push_back(output);
  return list;
}

// Walks from nodes to their inputs, once to each node.
template <typename Visit>
void Walk(const Graph& graph, std::vector<NodeId> from, const Visit& visit) {
  std::set<NodeId> seen(from.begin(), from.end());
  while (!from.empty()) {
    const Node& node = graph.node(from.back());
    from.pop_back();
    for (const Endpoint& input : node.inputs) {
      if (visit(input) && seen.insert(input.node).second) {
        from.push_back(input.node);
      }
    }
  }
}

std::vector<NodeId> NodesOf(const std::vector<Output>& outputs) {
  std::vector<NodeId> nodes;
  nodes.reserve(outputs.size());
  for (const Output& output : outputs) nodes.push_back(output.node);
  return nodes;
}

// An update of many variables in one node (engine/graph/ops/optimizer.h), whose
// inputs come in groups of one kind.
struct Grouped {
  explicit Grouped(const Node& node) {
    if (node.updates.empty() || !node.attributes.Has("groups")) return;
    count = static_cast<size_t>(node.attributes.Int("count"));
    num_tensors = count * static_cast<size_t>(node.attributes.Int("groups"));
  }

  bool is_grouped() const { return count > 0; }
  // Whether input `i` belongs to member `member`, or to all members.
  bool Concerns(size_t i, size_t member) const {
    return i >= num_tensors || i % count == member;
  }

  size_t count = 0;
  size_t num_tensors = 0;  // the inputs behind them are scalars
};

// The servers' part of a step, and the variables that its nodes depend on.
class ServerGraph {
 public:
  explicit ServerGraph(const StepSplit& split)
      : graph_(*split.servers.graph), roots_(NodesOf(split.servers.updates)) {
    for (const Output& output : split.servers.outputs) {
      const size_t number = pushed_.size();
      pushed_.emplace(output.endpoint(), number);
    }
    std::vector<NodeId> nodes = roots_;
    Walk(graph_, roots_, [&](Endpoint input) {
      if (pushed_.contains(input)) return false;
      nodes.push_back(input.node);
      return true;
    });
    nodes_.insert(nodes.begin(), nodes.end());
    for (const NodeId id : nodes_) {
      const Node& node = graph_.node(id);
      std::set<std::string>& made_of = made_of_[id];
      if (node.op == &graph::VariableOp()) {
        made_of.insert(VariableName(graph_, node));
      }
      for (const Endpoint& input : node.inputs) AddMadeOf(input, &made_of);
    }
  }

  const Graph& graph() const { return graph_; }
  // In graph order.
  const std::set<NodeId>& nodes() const { return nodes_; }
  // The index of a pushed value; none for other values.
  const size_t* PushedAt(Endpoint endpoint) const {
    const auto found = pushed_.find(endpoint);
    return found == pushed_.end() ? nullptr : &found->second;
  }
  // Adds the variables that a value depends on; kPushed if it depends on a
  // pushed value.
  void AddMadeOf(Endpoint endpoint, std::set<std::string>* names) const {
    if (pushed_.contains(endpoint)) {
      names->insert(kPushed);
      return;
    }
    const Node& node = graph_.node(endpoint.node);
    // a new version concerns the variable alone
    if (static_cast<size_t>(endpoint.index) < node.updates.size()) {
      names->insert(
          graph_.variable(node.updates[static_cast<size_t>(endpoint.index)])
              .name);
      return;
    }
    const std::set<std::string>& made_of = made_of_.at(endpoint.node);
    names->insert(made_of.begin(), made_of.end());
  }

  // The name of no variable.
  static constexpr const char* kPushed = "";

 private:
  const Graph& graph_;
  const std::vector<NodeId> roots_;
  std::map<Endpoint, size_t> pushed_;
  std::set<NodeId> nodes_;
  std::map<NodeId, std::set<std::string>> made_of_;
};

// Calls take(variables of one member, what they depend on) for each update.
template <typename Take>
void ForEachUpdate(const ServerGraph& servers, const Take& take) {
  for (const NodeId id : servers.nodes()) {
    const Node& node = servers.graph().node(id);
    if (node.updates.empty()) continue;
    const Grouped grouped(node);
    const size_t count = grouped.is_grouped() ? grouped.count : 1;
    for (size_t member = 0; member < count; ++member) {
      std::set<std::string> updated;
      for (size_t i = 0; i < node.updates.size(); ++i) {
        if (!grouped.is_grouped() || i % count == member) {
          updated.insert(servers.graph().variable(node.updates[i]).name);
        }
      }
      std::set<std::string> made_of;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (!grouped.is_grouped() || grouped.Concerns(i, member)) {
          servers.AddMadeOf(node.inputs[i], &made_of);
        }
      }
      take(updated, made_of);
    }
  }
}

// Sets of variables that one server must hold.
class Groups {
 public:
  const std::string& Find(const std::string& name) {
    std::string& parent = parents_.try_emplace(name, name).first->second;
    if (parent != name) parent = Find(parent);
    return parent;
  }
  void Join(const std::string& a, const std::string& b) {
    const std::string first = Find(a);
    parents_[Find(b)] = first;
  }

 private:
  std::map<std::string, std::string> parents_;
};

int64_t SizeBytes(const VariableSpec& spec) {
  return spec.shape.num_elements() *
         static_cast<int64_t>(DTypeSize(spec.dtype));
}

// Builds one server's part of a step.
class ShardBuilder {
 public:
  ShardBuilder(const StepSplit& split, const Sharding& sharding, int server)
      : servers_(split),
        target_(std::make_unique<Graph>(servers_.graph().seed())) {
    for (const VariableSpec& spec : servers_.graph().variables()) {
      if (!sharding.IsHeldBy(spec.name, server)) continue;
      variables_[spec.name] = target_->AddVariable(spec);
    }
    FindNeeded();
    for (const NodeId id : needed_) Copy(servers_.graph().node(id));
    for (const std::string& name : split.pushed_variables) {
      const auto held = variables_.find(name);
      if (held == variables_.end()) continue;
      const VariableSpec spec = target_->variable(held->second);
      step_.program.updates.push_back(graph::Assign(
          *target_, held->second,
          target_->Input("variable/" + name, spec.dtype, spec.shape)));
      step_.pushed_variables.push_back(name);
    }
    for (const auto& [number, input] : inputs_) step_.pushed.push_back(number);
    step_.program.graph = std::move(target_);
  }

  ShardStep Take() { return std::move(step_); }

 private:
  // The members of an update that this server has.
  std::vector<size_t> MembersOf(const Node& node) const {
    const Grouped grouped(node);
    const size_t count = grouped.is_grouped() ? grouped.count : 1;
    std::vector<size_t> members;
    for (size_t member = 0; member < count; ++member) {
      const std::string& name =
          servers_.graph().variable(node.updates[member]).name;
      if (variables_.contains(name)) members.push_back(member);
    }
    return members;
  }

  // The inputs of a node that this server needs.
  std::vector<size_t> InputsOf(const Node& node) const {
    const Grouped grouped(node);
    std::vector<size_t> inputs;
    const std::vector<size_t> members =
        node.updates.empty() ? std::vector<size_t>{} : MembersOf(node);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!grouped.is_grouped() || i >= grouped.num_tensors ||
          std::ranges::find(members, i % grouped.count) != members.end()) {
        inputs.push_back(i);
      }
    }
    return inputs;
  }

  void FindNeeded() {
    std::vector<NodeId> open;
    for (const NodeId id : servers_.nodes()) {
      const Node& node = servers_.graph().node(id);
      if (!node.updates.empty() && !MembersOf(node).empty()) {
        open.push_back(id);
        needed_.insert(id);
      }
    }
    while (!open.empty()) {
      const Node& node = servers_.graph().node(open.back());
      open.pop_back();
      for (const size_t i : InputsOf(node)) {
        const Endpoint input = node.inputs[i];
        if (servers_.PushedAt(input) == nullptr &&
            needed_.insert(input.node).second) {
          open.push_back(input.node);
        }
      }
    }
  }

  Output Mapped(Endpoint endpoint) {
    const size_t* number = servers_.PushedAt(endpoint);
    if (number == nullptr) return mapped_.at(endpoint);
    Output& input = inputs_[*number];
    if (!input.is_valid()) {
      const graph::TensorType& type = servers_.graph().type(endpoint);
      input = target_->Input(fmt::format("push/{}", *number), type.dtype,
                             type.shape);
    }
    return input;
  }

  void Copy(const Node& node) {
    if (node.op == &graph::VariableOp()) {
      mapped_[{node.id, 0}] = target_->Read(
          variables_.at(VariableName(servers_.graph(), node)), node.site);
      return;
    }
    Graph::NodeSpec spec{.op = node.op,
                         .attributes = node.attributes,
                         .name = node.name,
                         .constant = node.constant};
    for (const size_t i : InputsOf(node)) {
      spec.inputs.push_back(Mapped(node.inputs[i]));
    }
    // outputs in the source's order
    std::vector<int32_t> outputs;
    const Grouped grouped(node);
    if (grouped.is_grouped() && !node.updates.empty()) {
      const std::vector<size_t> members = MembersOf(node);
      for (size_t i = 0; i < node.updates.size(); ++i) {
        if (std::ranges::find(members, i % grouped.count) != members.end()) {
          outputs.push_back(static_cast<int32_t>(i));
        }
      }
      spec.attributes.Set("count", static_cast<int64_t>(members.size()));
    } else {
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        outputs.push_back(static_cast<int32_t>(i));
      }
    }
    for (const int32_t i : outputs) {
      if (static_cast<size_t>(i) >= node.updates.size()) break;
      spec.updates.push_back(
          variables_.at(servers_.graph()
                            .variable(node.updates[static_cast<size_t>(i)])
                            .name));
    }
    const bool is_update = !spec.updates.empty();
    const Output first = target_->Add(std::move(spec), node.site);
    for (size_t i = 0; i < outputs.size(); ++i) {
      mapped_[{node.id, outputs[i]}] =
          Graph::OutputOf(first, static_cast<int>(i));
    }
    if (is_update) step_.program.updates.push_back(first);
  }

  const ServerGraph servers_;
  std::unique_ptr<Graph> target_;
  std::map<std::string, VariableId> variables_;
  std::set<NodeId> needed_;
  std::map<Endpoint, Output> mapped_;
  std::map<size_t, Output> inputs_;  //  by pushed value
  ShardStep step_;
};

}  // namespace

StepSplit SplitStep(Graph& graph, const StepOutputs& outputs) {
  const std::vector<Output> values = OutputsOf(outputs);
  const std::vector<bool> is_local = FindLocalNodes(graph);
  const std::vector<bool> is_needed =
      FindNeededNodes(graph, values, outputs.updates);
  std::vector<Source> sources;
  StepSplit split;
  std::vector<Output> server_updates;
  for (const Node& node : graph.nodes()) {
    const auto at = static_cast<size_t>(node.id);
    sources.push_back(SourceOf(node, is_local[at], sources));
    if (node.updates.empty() || !is_needed[at]) continue;
    (is_local[at] ? split.updates : server_updates)
        .push_back(graph.output({node.id, 0}));
  }
  // the values that cross from the workers to the servers
  std::set<Endpoint> pushed;
  Walk(graph, NodesOf(server_updates), [&](Endpoint input) {
    const Source source = sources[static_cast<size_t>(input.node)];
    if (source == Source::kReduced) pushed.insert(input);
    return source != Source::kReduced;
  });
  for (const Endpoint& endpoint : pushed) {
    split.pushed.push_back(graph.output(endpoint));
  }
  for (const auto& [variable, site] :
       FindLocalUpdates(graph, values, outputs.updates)) {
    const VariableSpec& spec = graph.variable(variable);
    // the workers' replicator refuses trained variables
    if (!IsPerReplica(spec)) split.pushed_variables.insert(spec.name);
  }
  std::vector<NodeId> roots = NodesOf(values);
  for (const auto* list : {&split.pushed, &split.updates}) {
    for (const Output& output : *list) roots.push_back(output.node);
  }
  const auto look = [&](NodeId id) {
    const Node& node = graph.node(id);
    if (sources[static_cast<size_t>(id)] == Source::kServers) {
      throw InvalidArgument(fmt::format(
          "{}: {} '{}' combines what the replicas reduced with variables, "
          "which servers do after the step; no value of the step and no "
          "gradient can be made of it; hint: make what follows an update a "
          "phase of its own (BuildJoint)",
          node.site.ToString(), node.op->name, node.name));
    }
    if (node.op != &graph::VariableOp()) return;
    const std::string& name = VariableName(graph, node);
    if (!IsPerReplica(graph.variable(graph.FindVariable(name)))) {
      split.read_variables.insert(name);
    }
  };
  for (const NodeId root : roots) look(root);
  Walk(graph, roots, [&](Endpoint input) {
    look(input.node);
    return true;
  });
  split.servers = graph::ExtractProgram(graph, split.pushed, server_updates);
  return split;
}

Sharding::Sharding(const std::vector<const StepSplit*>& steps,
                   int num_servers) {
  std::map<std::string, VariableSpec> specs;
  std::set<std::string> not_counters;
  for (const StepSplit* step : steps) {
    for (const VariableSpec& spec : step->servers.graph->variables()) {
      if (!IsPerReplica(spec)) specs.emplace(spec.name, spec);
      if (graph::IsFloating(spec.dtype) || spec.is_trainable) {
        not_counters.insert(spec.name);
      }
    }
    not_counters.insert(step->pushed_variables.begin(),
                        step->pushed_variables.end());
    ForEachUpdate(ServerGraph(*step),
                  [&](const auto& updated, const auto& made_of) {
                    if (updated.size() == 1 && updated == made_of) return;
                    not_counters.insert(updated.begin(), updated.end());
                  });
  }
  Groups groups;
  for (const StepSplit* step : steps) {
    ForEachUpdate(ServerGraph(*step),
                  [&](const auto& updated, const auto& made_of) {
                    for (const auto* names : {&updated, &made_of}) {
                      for (const std::string& name : *names) {
                        if (not_counters.contains(name)) {
                          groups.Join(*updated.begin(), name);
                        }
                      }
                    }
                  });
  }
  // by first name of the group: its members and their bytes
  std::map<std::string, std::pair<int64_t, std::vector<std::string>>> sizes;
  for (const auto& [name, spec] : specs) {
    if (!not_counters.contains(name)) {
      for (int s = 0; s < num_servers; ++s) servers_[name].push_back(s);
      continue;
    }
    auto& [size, names] = sizes[groups.Find(name)];
    size += SizeBytes(spec);
    names.push_back(name);
  }
  std::vector<std::pair<int64_t, std::vector<std::string>>> order;
  order.reserve(sizes.size());
  for (auto& [first, group] : sizes) order.push_back(std::move(group));
  std::ranges::sort(order, [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  std::vector<int64_t> held(static_cast<size_t>(num_servers));
  for (const auto& [size, names] : order) {
    const auto least = std::ranges::min_element(held);
    *least += size;
    for (const std::string& name : names) {
      servers_[name] = {static_cast<int>(least - held.begin())};
    }
  }
}

bool Sharding::IsHeldBy(const std::string& name, int server) const {
  const auto found = servers_.find(name);
  return found != servers_.end() &&
         std::ranges::find(found->second, server) != found->second.end();
}

ShardStep MakeShardStep(const StepSplit& split, const Sharding& sharding,
                        int server) {
  return ShardBuilder(split, sharding, server).Take();
}

std::string DescribeSplit(const StepSplit& split) {
  std::string text;
  for (const Output& output : split.servers.outputs) {
    text += fmt::format("pushes {}\n", output.type().ToString());
  }
  for (const VariableSpec& spec : split.servers.graph->variables()) {
    // stays with the worker, as the sums of accumulated gradients do
    if (IsPerReplica(spec)) continue;
    text += fmt::format(
        "'{}' {}{}{}{}\n", spec.name, DTypeName(spec.dtype),
        spec.shape.ToString(),
        split.read_variables.contains(spec.name) ? ", read by workers" : "",
        split.pushed_variables.contains(spec.name) ? ", pushed" : "");
  }
  for (const Output& update : split.servers.updates) {
    const Node& node = update.producer();
    text +=
        fmt::format("{} of {} variables\n", node.op->name, node.updates.size());
  }
  return text;
}

}  // namespace replicant::replicator
