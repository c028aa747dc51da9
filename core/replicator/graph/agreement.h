#pragma once

#include <string>
#include <vector>

#include "core/graph/passes/passes.h"
#include "core/replicator/replica_context.h"

// Checks, while a step is built, that the replicas build the same step.
namespace replicant::replicator {

// The parts of one replica's step that must be equal on every replica.
struct Signature {
  struct Entry {
    // Compared: "AllReduce mean of f32[3]".
    std::string what;
    // Told: "step.cc:7"; empty where there is none.
    std::string where;
  };
  struct Section {
    // One entry of it, in a message: "primitive".
    std::string name;
    std::vector<Entry> entries;
  };

  std::vector<Section> sections;
};

// The primitives, variables and updates of a program with placeholders. An
// update counts by how it is computed, whatever the nodes are called.
Signature SignatureOf(const graph::Program& program);

// Adds the calls of the lowered program.
void AddCalls(const std::vector<std::string>& calls, Signature* signature);

// Throws InvalidArgument for the first difference between replica 0 and any
// other one. The message names both replicas, the entry and both places.
void CheckAgreement(const std::vector<Signature>& signatures);

// The signatures of several replicas, in order, as one text for other
// processes. Decode() is the inverse of Encode().
std::string Encode(const std::vector<Signature>& signatures);
std::vector<Signature> Decode(const std::string& text);

// By node: whether what it computes differs between replicas.
std::vector<bool> FindLocalNodes(const Graph& graph);

// By node: whether it is computed on the way to one of these.
std::vector<bool> FindNeededNodes(const Graph& graph,
                                  const std::vector<Output>& outputs,
                                  const std::vector<Output>& updates);

// The variables that `updates` write with values that differ between replicas:
// computed from the batch or random numbers by way of no primitive that gives
// all replicas the same.
struct LocalUpdate {
  VariableId variable = -1;
  CallSite site;  // of the update
};
std::vector<LocalUpdate> FindLocalUpdates(const Graph& graph,
                                          const std::vector<Output>& outputs,
                                          const std::vector<Output>& updates);

}  // namespace replicant::replicator
