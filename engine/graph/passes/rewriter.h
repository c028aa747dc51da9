#pragma once

#include <map>
#include <set>
#include <vector>

#include "engine/graph/passes/passes.h"

namespace replicant::graph {

// Builds the program that a pass returns. The pass goes through the source's
// nodes in order and maps each to nodes of the target.
class Rewriter {
 public:
  // `source` must outlive the rewriter.
  explicit Rewriter(const Graph& source);

  Graph& graph() { return *target_; }
  const Graph& source() const { return source_; }

  // Returns the target's output for an endpoint of the source, which has been
  // mapped (checked).
  Output Mapped(Endpoint source) const;
  std::vector<Output> MappedInputs(const Node& node) const;

  void Map(Endpoint source, Output target);
  // Adds a copy of the node on the same device, with mapped inputs, maps its
  // outputs and returns the first of them.
  Output Copy(const Node& node);
  // Adds `spec` in place of the node, maps the outputs one to one and returns
  // the first of them.
  Output Replace(const Node& node, Graph::NodeSpec spec);

  // Returns the target graph with the mapped outputs and updates. The rewriter
  // is empty afterwards.
  Program Finish(const std::vector<Output>& outputs,
                 const std::vector<Output>& updates);
  Program Finish(const Program& source) {
    return Finish(source.outputs, source.updates);
  }

 private:
  const Graph& source_;
  std::unique_ptr<Graph> target_;
  std::map<Endpoint, Output> mapped_;
};

// Number of uses of every output in a program.
struct UseCounts {
  explicit UseCounts(const Program& program);

  // Uses as input of a node, plus one for each fetch.
  int of(Endpoint endpoint) const;

  std::map<Endpoint, int> counts;
};

// Tells fusing passes which nodes may run later than their place in the graph.
// A node that reads an old version of a variable must run before the update
// that replaces this version. Fused with a node that depends on an update, it
// could have to run both before and after the same update.
class VersionOrder {
 public:
  explicit VersionOrder(const Graph& graph);

  // Whether `node` may be computed as part of `later`.
  bool MayJoin(const Node& node, const Node& later) const;

 private:
  // by node: whether it is, or depends on, an update
  std::vector<bool> follows_update_;
  std::set<Endpoint> replaced_;
};

// The instruction of an elementwise node that has one; null for others.
const ScalarProgram::Instruction* SingleInstruction(const Node& node);

Program FoldConstants(const Program& program, const TargetInfo& target);
Program EliminateCommonSubexpressions(const Program& program,
                                      const TargetInfo& target);
Program FuseEpilogues(const Program& program, const TargetInfo& target);
Program FusePixels(const Program& program, const TargetInfo& target);
Program FuseNorms(const Program& program, const TargetInfo& target);
Program FuseElementwise(const Program& program, const TargetInfo& target);
Program Prune(const Program& program, const TargetInfo& target);

}  // namespace replicant::graph
