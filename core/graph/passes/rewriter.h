#pragma once

#include <map>
#include <set>
#include <vector>

#include "core/graph/passes/passes.h"

namespace replicant::graph {

// Builds the program that a pass makes of another one: the pass goes through
// the source's nodes in order and says what each becomes.
class Rewriter {
 public:
  // `source` must outlive the rewriter.
  explicit Rewriter(const Graph& source);

  Graph& graph() { return *target_; }
  const Graph& source() const { return source_; }

  // What an endpoint of the source has become. It was mapped (checked).
  Output Mapped(Endpoint source) const;
  std::vector<Output> MappedInputs(const Node& node) const;

  void Map(Endpoint source, Output target);
  // Copies the node as it is, where it is, with its inputs as mapped, and maps
  // its outputs.
  // Returns its first output.
  Output Copy(const Node& node);
  // As Copy(), with another spec; outputs are mapped one to one.
  Output Replace(const Node& node, Graph::NodeSpec spec);

  // What these outputs and updates of the source have become, with the graph.
  // The rewriter is empty afterwards.
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

// How the nodes of a program use each other.
struct UseCounts {
  explicit UseCounts(const Program& program);

  // Uses as input of a node, plus one for each fetch.
  int of(Endpoint endpoint) const;

  std::map<Endpoint, int> counts;
};

// Tells fusing passes which nodes may be computed later than they stand. A node
// that reads a version of a variable which an update replaces must run before
// that update; computed together with a node that depends on an update, it
// might have to run both before and after it.
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

// The instruction of an elementwise node; null if it has several, or is none.
const ScalarProgram::Instruction* SingleInstruction(const Node& node);

Program FoldConstants(const Program& program, const TargetInfo& target);
Program EliminateCommonSubexpressions(const Program& program,
                                      const TargetInfo& target);
Program FuseEpilogues(const Program& program, const TargetInfo& target);
Program FusePixels(const Program& program, const TargetInfo& target);
Program FuseElementwise(const Program& program, const TargetInfo& target);
Program ChooseLayouts(const Program& program, const TargetInfo& target);
Program Prune(const Program& program, const TargetInfo& target);

}  // namespace replicant::graph
