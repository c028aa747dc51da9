#pragma once

#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/ops/conv.h"
#include "core/nn/initializers.h"

// Layers: the variables of one, and how it is applied. A layer can be applied
// many times, to any input that fits, always with the newest version of its
// variables. Variables are called as in PyTorch, with the scopes and the
// layer's name in front: "critic/hidden/weight".
//
// Constructors throw InvalidArgument for a name that is taken; applying throws
// the ShapeError of the op at the caller's place.
namespace replicant::nn {

using graph::CallSite;
using graph::Graph;
using graph::Output;
using graph::VariableId;

struct LayerOptions {
  // PyTorch's default where empty.
  Initializer weight = {};
  Initializer bias = {};
  bool has_bias = true;
  DType dtype = DType::kF32;
};

// y = x weight^T + bias: [B, in] -> [B, out]; weight [out, in], bias [out].
class Dense {
 public:
  Dense(Graph& graph, const std::string& name, int64_t in, int64_t out,
        const LayerOptions& options = {}, CallSite site = CallSite::Here());

  Output operator()(Output x, CallSite site = CallSite::Here()) const;
  const std::vector<VariableId>& variables() const { return variables_; }

 private:
  // weight, then bias if there is one
  std::vector<VariableId> variables_;
};

// graph::Conv2d and a bias: [B, H, W, in] -> [B, H', W', out]; weight
// [out, in, kernel, kernel], bias [out].
class Conv2d {
 public:
  Conv2d(Graph& graph, const std::string& name, int64_t in, int64_t out,
         int64_t kernel, const graph::Conv2dOptions& conv = {},
         const LayerOptions& options = {}, CallSite site = CallSite::Here());

  Output operator()(Output x, CallSite site = CallSite::Here()) const;
  const std::vector<VariableId>& variables() const { return variables_; }

 private:
  graph::Conv2dOptions conv_;
  std::vector<VariableId> variables_;
};

// graph::LayerNorm with weight (gamma, first values 1) and bias (beta, 0), [C].
class LayerNorm {
 public:
  LayerNorm(Graph& graph, const std::string& name, int64_t size,
            DType dtype = DType::kF32, double epsilon = 1e-5,
            CallSite site = CallSite::Here());

  Output operator()(Output x, CallSite site = CallSite::Here()) const;
  const std::vector<VariableId>& variables() const { return variables_; }

 private:
  double epsilon_;
  std::vector<VariableId> variables_;
};

// graph::BatchNorm with weight, bias, running_mean and running_var, [C]. The
// last two are not trained and move by
//
//   running = (1 - momentum) * running + momentum * batch
//
// with the unbiased batch variance, as in PyTorch.
class BatchNorm {
 public:
  BatchNorm(Graph& graph, const std::string& name, int64_t size,
            DType dtype = DType::kF32, double epsilon = 1e-5,
            double momentum = 0.1, CallSite site = CallSite::Here());

  // With the statistics of this batch; appends the update of the running ones
  // to `updates`. Throws InvalidArgument for one element per channel.
  Output Train(Output x, std::vector<Output>* updates,
               CallSite site = CallSite::Here()) const;
  // With the newest version of the running statistics: what the run finds, or,
  // after Train(), what this step makes of them.
  Output Infer(Output x, CallSite site = CallSite::Here()) const;
  // weight, bias
  const std::vector<VariableId>& variables() const { return variables_; }

 private:
  double epsilon_;
  double momentum_;
  std::vector<VariableId> variables_;
  VariableId running_mean_ = -1;
  VariableId running_variance_ = -1;
};

}  // namespace replicant::nn
