#pragma once

#include <vector>

#include "engine/graph/graph.h"
#include "engine/nn/initializers.h"

namespace replicant::nn {

using graph::CallSite;
using graph::Graph;
using graph::Output;
using graph::VariableId;

// A weight divided by its largest singular value: graph::SpectralNorm with its
// variables. They are declared under the scopes open at construction:
//
//   weight_orig    as `shape`       trained
//   weight_u       [O]              not trained; a random unit vector at first
//   weight_v       elements / O     the same
class SpectralNorm {
 public:
  // An empty `weight` means PyTorch's first values.
  SpectralNorm(Graph& graph, const Shape& shape, const Initializer& weight = {},
               DType dtype = DType::kF32, CallSite site = CallSite::Here());

  // Returns the weight after one power iteration from the newest versions, and
  // appends the updates of u and v to `updates`.
  Output Train(std::vector<Output>* updates,
               CallSite site = CallSite::Here()) const;
  // Returns the weight with the newest u and v, and updates nothing.
  Output Infer(CallSite site = CallSite::Here()) const;

  VariableId weight() const { return weight_; }

 private:
  Graph* graph_;  // outlives this
  VariableId weight_ = -1;
  VariableId u_ = -1;
  VariableId v_ = -1;
};

}  // namespace replicant::nn
