#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/graph/graph.h"
#include "engine/graph/ops/conv.h"
#include "engine/graph/ops/norm.h"
#include "engine/nn/initializers.h"

// A layer is a set of variables and a function that applies them. It can be
// applied many times, to any input that fits, and always uses the newest
// version of its variables. Variables have PyTorch's names after the open
// scopes and the layer's name: "critic/hidden/weight".
//
// Constructors throw InvalidArgument for a name that is taken. Applying a layer
// throws the op's ShapeError at the caller's site.
namespace replicant::nn {

using graph::CallSite;
using graph::Graph;
using graph::Output;
using graph::VariableId;

// Collects the rows of all replicas, as ReplicaContext::AllGather: [...] ->
// [R, ...] for R replicas.
using GatherFn = std::function<Output(Output)>;

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

struct BatchNormLayerOptions {
  // First values of gamma; ones where empty.
  Initializer weight = {};
  double epsilon = 1e-5;
  // Share of the batch in the new running statistics.
  double momentum = 0.1;
  DType dtype = DType::kF32;
  // Gathers the moments of all replicas' batches, which have one size. Empty:
  // the statistics cover this replica's batch.
  GatherFn gather = {};
};

// Ops that follow a batch norm: see graph::BatchNormOptions.
struct NormEpilogue {
  bool has_relu = false;
  Output residual = graph::kNoGradient;
};

// Moving averages of batch statistics, "<name>/running_mean" and
// "<name>/running_var" [C]. They are not trained. Each batch moves them by
//
//   running = (1 - momentum) * running + momentum * batch
//
// with the unbiased batch variance, as in PyTorch. The batch norm layers below
// call it under their own Graph::SiteScope.
class RunningStatistics {
 public:
  RunningStatistics(Graph& graph, const std::string& name, int64_t size,
                    const BatchNormLayerOptions& options);

  // Applies graph::BatchNorm with the statistics of this batch, or of all
  // replicas' batches together, and appends the update of the running
  // statistics to `updates`. Throws InvalidArgument for one element per
  // channel.
  Output Train(Output x, Output gamma, Output beta,
               const NormEpilogue& epilogue,
               std::vector<Output>* updates) const;
  // Applies graph::BatchNormInference with the newest version of the running
  // statistics. After Train() in the same graph, this is the version that the
  // step makes.
  Output Infer(Output x, Output gamma, Output beta,
               const NormEpilogue& epilogue) const;

 private:
  // y, mean and variance [C], and the number of elements per channel.
  struct Normalised {
    graph::BatchNormOutputs norm;
    double count;
  };
  Normalised Normalise(Output x, Output gamma, Output beta,
                       const NormEpilogue& epilogue) const;

  double epsilon_;
  double momentum_;
  GatherFn gather_;
  VariableId mean_ = -1;
  VariableId variance_ = -1;
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
  // set by the constructor
  std::optional<RunningStatistics> statistics_;
};

// Batch norm with a gamma and a beta per class. Weight and bias are tables
// [classes, C], ones and zeros at first; each example uses the row of its class
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
  // set by the constructor
  std::optional<RunningStatistics> statistics_;
};

}  // namespace replicant::nn
