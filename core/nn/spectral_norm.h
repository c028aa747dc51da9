#pragma once

#include <vector>

#include "core/graph/graph.h"
#include "core/nn/initializers.h"

namespace replicant::nn {

using graph::CallSite;
using graph::Graph;
using graph::Output;
using graph::VariableId;

// A weight that is divided by its largest singular value: graph::SpectralNorm
// with the variables that it needs.
//
// Variables, under the scope that is open when it is made: "weight_orig", which
// is trained, and "weight_u" [O], "weight_v" [...], which are not: random unit
// vectors at first.
class SpectralNorm {
 public:
  // PyTorch's first values where `weight` is empty.
  SpectralNorm(Graph& graph, const Shape& shape, const Initializer& weight = {},
               DType dtype = DType::kF32, CallSite site = CallSite::Here());

  // After one power iteration on the newest version of everything; appends the
  // updates of u and v to `updates`.
  Output Train(std::vector<Output>* updates,
               CallSite site = CallSite::Here()) const;
  // With u and v as they are.
  Output Infer(CallSite site = CallSite::Here()) const;

  VariableId weight() const { return weight_; }

 private:
  Graph* graph_;
  VariableId weight_;
  VariableId u_;
  VariableId v_;
};

}  // namespace replicant::nn
