#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/graph/passes/passes.h"
#include "core/replicator/replicator.h"

// How a step is divided between workers, which learn from batches, and servers,
// which hold the variables. Both sides build the same step and come to the same
// division.
namespace replicant::replicator {

// What is computed from the batch is the workers'. What is made of that by a
// primitive (the mean of the gradients, by AllReduce), and of nothing else but
// such, is as well (their norm); that is pushed. Updates that combine it with
// variables (an optimizer's), or need variables alone (counters, targets), are
// the servers'.
//
// A variable that is not trained and that a worker updates from its batch alone
// (batch-norm statistics) is pushed whole: the last one counts. One of
// ReplicaAgreement::kPerReplica stays the worker's own.
struct StepSplit {
  // In the step's own graph: what workers push, and what they update.
  std::vector<Output> pushed;
  std::vector<Output> updates;
  // The servers' part: its outputs are what is pushed, which is cut off there.
  graph::Program servers;
  // Variables that workers push, and those that they read.
  std::set<std::string> pushed_variables;
  std::set<std::string> read_variables;
};

// Throws InvalidArgument, naming the place, if a worker would need something
// within the step that servers make.
StepSplit SplitStep(Graph& graph, const StepOutputs& outputs);

// Which server holds which variable.
//
// Variables that an update brings together (a parameter, its slots, its target)
// are held together; such groups are dealt out by size, the largest first, each
// to the server that holds the least. Counters (whole numbers that only depend
// on themselves) every server has for itself that needs them.
class Sharding {
 public:
  Sharding(const std::vector<const StepSplit*>& steps, int num_servers);

  // By name: the servers that have it, ascending; the first one's is read.
  // A kPerReplica variable has none.
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

// What workers and servers must have in common, one line for each tensor.
std::string DescribeSplit(const StepSplit& split);

}  // namespace replicant::replicator
