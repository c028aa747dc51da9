#pragma once

#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "core/export/stablehlo_builder.h"
#include "core/graph/graph.h"

namespace replicant::exporting {

// A node under translation.
struct StableHloNode {
  const graph::Node& node;
  const graph::Graph& graph;
  // One for each of the node's inputs.
  std::span<const HloValue> inputs;

  const HloValue& input(size_t i) const { return inputs[i]; }
  const graph::TensorType& output_type(int i = 0) const {
    return node.output_type(i);
  }
  // Throws InvalidArgument "<file:line>: <op> '<name>' <why>".
  [[noreturn]] void Fail(std::string_view why) const;
};

// How an op is said in StableHLO.
struct StableHloForm {
  // Adds the ops that compute the node and returns its outputs, all of them.
  using WriteFn = std::vector<HloValue> (*)(HloBuilder&, const StableHloNode&);
  // What the outputs have to do with replicas.
  enum class Locality {
    kAsInputs,    // per replica if an input is
    kReplicated,  // the same on all replicas
    kPerReplica
  };

  WriteFn write = nullptr;
  Locality locality = Locality::kAsInputs;
};

// By name of the op (OpDef::name). An op of core/graph may not be given another
// form.
using StableHloForms = std::map<std::string_view, StableHloForm>;

}  // namespace replicant::exporting
