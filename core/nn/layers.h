#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/ops/conv.h"
#include "core/graph/ops/norm.h"
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

// What several replicas have, as ReplicaContext::AllGather: [...] ->
// [replicas, ...].
using GatherFn = std::function<Output(Output)>;

struct BatchNormLayerOptions {
  // First values of gamma; ones where empty.
  Initializer weight = {};
  double epsilon = 1e-5;
  // By how much the running statistics move.
  double momentum = 0.1;
  DType dtype = DType::kF32;
  // Makes the statistics those of all replicas' batches, of equal size; empty:
  // of this one's.
  GatherFn gather = {};
};

// What follows a batch norm, see graph::BatchNormOptions.
struct NormEpilogue {
  bool has_relu = false;
  Output residual = graph::kNoGradient;
};

// The statistics of batches so far, "running_mean" and "running_var" [C]. They
// are not trained and move by
//
//   running = (1 - momentum) * running + momentum * batch
//
// with the unbiased batch variance, as in PyTorch.
class RunningStatistics {
 public:
  // Under the scope that is open.
  RunningStatistics(Graph& graph, int64_t size,
                    const BatchNormLayerOptions& options, CallSite site);

  // graph::BatchNorm with the statistics of this batch, or of all replicas'
  // together; appends the update of the running ones to `updates`. Throws
  // InvalidArgument for one element per channel.
  Output Train(Output x, Output gamma, Output beta,
               const NormEpilogue& epilogue, std::vector<Output>* updates,
               CallSite site) const;
  // graph::BatchNormInference with the newest version of the running
  // statistics: what the run finds, or, after Train(), what this step makes of
  // them.
  Output Infer(Output x, Output gamma, Output beta,
               const NormEpilogue& epilogue, CallSite site) const;

 private:
  // y, with mean and variance [C] of so many elements per channel.
  struct Normalised {
    graph::BatchNormOutputs norm;
    double count;
  };
  Normalised Normalise(Output x, Output gamma, Output beta,
                       const NormEpilogue& epilogue, CallSite site) const;

  double epsilon_;
  double momentum_;
  GatherFn gather_;
  VariableId mean_;
  VariableId variance_;
};

// Batch norm with weight (gamma), bias (beta, first values 0) [C] and running
// statistics.
class BatchNorm {
 public:
  BatchNorm(Graph& graph, const std::string& name, int64_t size,
            const BatchNormLayerOptions& options = {},
            CallSite site = CallSite::Here());

  // See RunningStatistics.
  Output Train(Output x, std::vector<Output>* updates,
               const NormEpilogue& epilogue = {},
               CallSite site = CallSite::Here()) const;
  Output Infer(Output x, const NormEpilogue& epilogue = {},
               CallSite site = CallSite::Here()) const;
  // weight, bias
  const std::vector<VariableId>& variables() const { return variables_; }

 private:
  std::vector<VariableId> variables_;
  RunningStatistics statistics_;
};

// Batch norm whose gamma and beta are those of each example's class: weight
// and bias are tables [classes, C], of ones and zeros at first
// (arXiv:1802.05637, section 4).
class ConditionalBatchNorm {
 public:
  ConditionalBatchNorm(Graph& graph, const std::string& name,
                       int64_t num_classes, int64_t size,
                       const BatchNormLayerOptions& options = {},
                       CallSite site = CallSite::Here());

  // x [B, ..., C]; labels [B], i32 or i64, in [0, classes).
  Output Train(Output x, Output labels, std::vector<Output>* updates,
               const NormEpilogue& epilogue = {},
               CallSite site = CallSite::Here()) const;
  Output Infer(Output x, Output labels, const NormEpilogue& epilogue = {},
               CallSite site = CallSite::Here()) const;
  // weight, bias
  const std::vector<VariableId>& variables() const { return variables_; }

 private:
  std::vector<VariableId> variables_;
  RunningStatistics statistics_;
};

}  // namespace replicant::nn
