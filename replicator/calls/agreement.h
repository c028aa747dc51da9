#pragma once

#include <string>
#include <vector>

#include "engine/graph/passes/passes.h"
#include "replicator/calls/collective_ops.h"
#include "replicator/calls/lowering.h"

// Checks, while a step is built, that the replicas build the same step.
namespace replicant::replicator {

// The parts of one replica's step that must be equal on every replica.
struct Signature {
  struct Entry {
    // Compared: "AllReduce mean of f32[3]".
    std::string what;
    // For messages: "step.cc:7"; empty if unknown.
    std::string where;
  };
  struct Section {
    // Name of one entry in messages: "primitive".
    std::string name;
    std::vector<Entry> entries;
  };

  std::vector<Section> sections;
};

// The primitives, variables and updates of a program with placeholders. Updates
// are compared by their computation, not by node names.
Signature SignatureOf(const graph::Program& program);

// Adds the calls of the lowered program, and which primitives each has.
void AddCalls(const LoweredProgram& program, Signature* signature);

// Throws InvalidArgument for the first difference between replica 0 and any
// other one. The message names both replicas, the entry and both places.
void CheckAgreement(const std::vector<Signature>& signatures);

// The signatures of several replicas, in order, as one text for other
// processes. Decode() is the inverse of Encode().
std::string Encode(const std::vector<Signature>& signatures);
std::vector<Signature> Decode(const std::string& text);

// For each node: whether its result differs between replicas.
std::vector<bool> FindLocalNodes(const Graph& graph);

// For each node: whether an output or update depends on it.
std::vector<bool> FindNeededNodes(const Graph& graph,
                                  const std::vector<Output>& outputs,
                                  const std::vector<Output>& updates);

// The variables that `updates` write with values that differ between replicas:
// computed from the batch or random numbers without a primitive that makes the
// result equal on all replicas.
struct LocalUpdate {
  VariableId variable = -1;
  CallSite site;  // of the update
};
std::vector<LocalUpdate> FindLocalUpdates(const Graph& graph,
                                          const std::vector<Output>& outputs,
                                          const std::vector<Output>& updates);

}  // namespace replicant::replicator
