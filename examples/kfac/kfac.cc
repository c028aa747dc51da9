#include "kfac.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "engine/graph/gradients.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/linalg.h"
#include "engine/graph/ops/matmul.h"
#include "engine/graph/ops/random.h"
#include "engine/graph/ops/reduce.h"
#include "engine/graph/ops/shape_ops.h"
#include "engine/graph/ops/state.h"
#include "engine/nn/optimizers.h"

using namespace replicant;              // NOLINT
using namespace replicant::graph;       // NOLINT
using namespace replicant::replicator;  // NOLINT

namespace {

// A square matrix with `value` on its diagonal.
HostTensor Diagonal(DType dtype, int64_t size, double value) {
  HostTensor matrix(dtype, Shape({size, size}));
  for (int64_t i = 0; i < size; ++i) {
    const auto at = static_cast<size_t>(i * (size + 1));
    if (dtype == DType::kF64) {
      matrix.MutableSpan<double>()[at] = value;
    } else {
      matrix.MutableSpan<float>()[at] = static_cast<float>(value);
    }
  }
  return matrix;
}

// The two factors of a layer, for this batch: a structure that one call
// reduces.
struct Factors {
  Output inputs;     // a a^T [in + 1, in + 1]
  Output gradients;  // g g^T [out, out]

  void ForEachMember(const auto& visit) { visit(inputs), visit(gradients); }
};

struct Layer {
  VariableId weight, input_average, gradient_average;
  Output input;  // [B, in + 1]
  Output sums;   // [B, out]
};

Layer AddLayer(Graph& g, int index, Output x, int64_t size, DType dtype) {
  const Graph::Scope scope(g, fmt::format("layer{}", index));
  const int64_t rows = x.shape()[0];
  const int64_t num_inputs = x.shape()[1] + 1;
  const HostTensor one = Diagonal(dtype, 1, 1.0);
  Layer layer;
  layer.weight =
      g.AddVariable({.name = "weight",
                     .dtype = dtype,
                     .shape = Shape({size, num_inputs}),
                     .initializer = [num_inputs](RandomStream& random,
                                                 MutableTensorView value) {
                       const double scale =
                           1.0 / std::sqrt(static_cast<double>(num_inputs));
                       if (value.dtype() == DType::kF64) {
                         for (double& w : value.Span<double>())
                           w = scale * random.Normal();
                       } else {
                         for (float& w : value.Span<float>()) {
                           w = static_cast<float>(scale * random.Normal());
                         }
                       }
                     }});
  const auto add_average = [&](const char* name, int64_t n) {
    return g.AddVariable(
        {.name = name,
         .dtype = dtype,
         .shape = Shape({n, n}),
         .initializer =
             [n](RandomStream&, MutableTensorView value) {
               const HostTensor identity = Diagonal(value.dtype(), n, 1.0);
               std::memcpy(value.data(), identity.view().data(),
                           value.size_bytes());
             },
         .is_trainable = false});
  };
  layer.input_average = add_average("inputs", num_inputs);
  layer.gradient_average = add_average("gradients", size);
  const Output ones = BroadcastTo(g.Constant(one.view()), Shape({rows, 1}));
  layer.input = Concat({x, ones}, 1);
  layer.sums = MatMul(layer.input, g.Read(layer.weight), {.transpose_b = true});
  return layer;
}

// Both damped inverses of every layer, each a piece of work.
std::vector<ReplicaContext::Piece> Inverses(Graph& g,
                                            const std::vector<Layer>& layers,
                                            double damping) {
  const auto mean_diagonal = [&](Output factor) {
    const int64_t n = factor.shape()[0];
    const HostTensor one = Diagonal(factor.dtype(), n, 1.0);
    return Mul(ReduceSum(Mul(factor, g.Constant(one.view()))),
               1.0 / static_cast<double>(n));
  };
  const auto inverse = [&g](Output factor, Output share) {
    const HostTensor one = Diagonal(factor.dtype(), factor.shape()[0], 1.0);
    const Output identity = g.Constant(one.view());
    return CholeskySolve(Add(factor, Mul(identity, share)), identity);
  };
  std::vector<ReplicaContext::Piece> pieces;
  for (const Layer& layer : layers) {
    const Output a = g.Read(layer.input_average);
    const Output gradients = g.Read(layer.gradient_average);
    const auto pi = [=] {
      return Sqrt(Div(mean_diagonal(a), mean_diagonal(gradients)));
    };
    pieces.emplace_back([=]() -> std::vector<Output> {
      return {inverse(a, Mul(pi(), std::sqrt(damping)))};
    });
    pieces.emplace_back([=, &g]() -> std::vector<Output> {
      const Output root = g.Scalar(std::sqrt(damping), a.dtype());
      return {inverse(gradients, Div(root, pi()))};
    });
  }
  return pieces;
}

StepOutputs BuildStep(ReplicaContext& replica, const Inputs& batch,
                      const KfacOptions& options) {
  Graph& g = replica.graph();
  const Output y = batch.at("y");
  const int64_t rows = y.shape()[0];
  std::vector<Layer> layers;
  Output x = batch.at("x");
  for (size_t i = 1; i < options.sizes.size(); ++i) {
    layers.push_back(
        AddLayer(g, static_cast<int>(i), x, options.sizes[i], options.dtype));
    x = i + 1 < options.sizes.size() ? Tanh(layers.back().sums)
                                     : layers.back().sums;
  }
  const Output loss = ReduceMean(ReduceSum(Square(Sub(x, y)), {.axes = {1}}));

  std::vector<VariableId> variables;
  std::vector<Output> weights, sums;
  for (const Layer& layer : layers) {
    variables.push_back(layer.weight);
    weights.push_back(g.Read(layer.weight));
    sums.push_back(layer.sums);
  }
  // a target drawn from the model is off by a standard normal
  const nn::StepCounter step = nn::AddStepCounter(g);
  const auto range = replica.Rows(rows);
  const Output noise = RandomNormal({.name = "targets",
                                     .step = step.value,
                                     .first_row = range.first_row,
                                     .row_offset = range.row_offset},
                                    options.dtype, y.shape());
  const std::vector<Output> drawn = Gradients(ReduceSum(Mul(x, noise)), sums);
  std::vector<Factors> factors;
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto moment = [&](Output v) {
      return Mul(MatMul(v, v, {.transpose_a = true}),
                 1.0 / static_cast<double>(rows));
    };
    factors.push_back({moment(layers[i].input), moment(drawn[i])});
  }
  factors = replica.AllReduce(factors, ReduceOp::kMean);

  const auto inverses = replica.MapGather(Inverses(g, layers, options.damping));
  std::vector<Output> directions =
      replica.MeanGradients(Gradients(loss, weights));
  for (size_t i = 0; i < layers.size(); ++i) {
    directions[i] = MatMul(MatMul(inverses[2 * i + 1][0], directions[i]),
                           inverses[2 * i][0]);
  }
  StepOutputs outputs{
      .values = {{"loss", replica.AllReduce(loss, ReduceOp::kMean)}},
      .updates = {nn::Sgd(replica, "sgd", variables, directions,
                          g.Scalar(options.learning_rate, options.dtype)),
                  step.advance}};
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto average = [&](VariableId variable, Output newest) {
      outputs.updates.push_back(Assign(g, variable,
                                       Add(Mul(g.Read(variable), options.decay),
                                           Mul(newest, 1.0 - options.decay))));
    };
    average(layers[i].input_average, factors[i].inputs);
    average(layers[i].gradient_average, factors[i].gradients);
  }
  return outputs;
}

}  // namespace

StepFn KfacStep(const KfacOptions& options) {
  return [options](ReplicaContext& replica, const Inputs& batch) {
    return BuildStep(replica, batch, options);
  };
}
