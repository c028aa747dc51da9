#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/graph/passes/passes.h"
#include "replicator/replicator.h"

// Divides a step between workers, which compute gradients from batches, and
// servers, which hold the variables. Both sides build the same step and find
// the same division.
namespace replicant::replicator {

// Workers compute every node that depends on the batch, the primitives (the
// mean of the gradients, by AllReduce) and the nodes that depend on results of
// primitives alone (the norm of the gradients). They push those results.
// Servers compute the updates that combine results with variables (an
// optimizer's) or need variables alone (counters, targets).
//
// A variable that is not trained and that a worker updates from its batch alone
// (batch-norm statistics) is pushed whole: the last push wins. A variable of
// ReplicaAgreement::kPerReplica stays with the worker.
struct StepSplit {
  // In the step's own graph: what workers push, and what they update.
  std::vector<Output> pushed;
  std::vector<Output> updates;
  // The servers' part, cut off at the pushed values, which are its outputs.
  graph::Program servers;
  // Variables that workers push, and those that they read.
  std::set<std::string> pushed_variables;
  std::set<std::string> read_variables;

  // Whether the step changes no variable: there is nothing to push.
  bool only_reads() const { return updates.empty() && servers.updates.empty(); }
};

// Throws InvalidArgument, naming the place, if a worker would need a result of
// the servers within the step.
StepSplit SplitStep(Graph& graph, const StepOutputs& outputs);

// Assigns variables to servers.
//
// One server holds all variables of an update (a parameter, its slots, its
// target). These groups are dealt out by size, the largest first, each to the
// server that holds the least. Counters (whole numbers that depend on
// themselves only) are copied to every server that needs them.
class Sharding {
 public:
  Sharding(const std::vector<const StepSplit*>& steps, int num_servers);

  // By name: the servers that hold it, ascending; reads use the first. A
  // kPerReplica variable has none.
  const std::map<std::string, std::vector<int>>& servers() const {
    return servers_;
  }
  bool IsHeldBy(const std::string& name, int server) const;

 private:
  std::map<std::string, std::vector<int>> servers_;
};

// One server's part of a step: a graph with its variables, and the inputs
// "push/<i>" (pushed[i]) and "variable/<name>" that it needs.
struct ShardStep {
  graph::Program program;  // without outputs
  std::vector<size_t> pushed;
  std::vector<std::string> pushed_variables;
};
ShardStep MakeShardStep(const StepSplit& split, const Sharding& sharding,
                        int server);

// The tensors that workers and servers must agree on, one per line.
std::string DescribeSplit(const StepSplit& split);

}  // namespace replicant::replicator
