#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "engine/graph/gradients.h"
#include "engine/graph/ops/matmul.h"
#include "replicator/make_replicator.h"
#include "tests/replicator/replication_cases.h"

// Pieces of work shared out among replicas, for every strategy.
namespace replicant::replicator {

// Damped factors of K-FAC (arXiv:1503.05671, section 6.3), of different sizes:
// W_i^T W_i + I. One replica's piece is a factor's inverse by Newton and
// Schulz, X = X (2 I - A X), which needs matmuls alone.
inline StepOutputs FactorStep(ReplicaContext& replica, const Inputs& batch) {
  Graph& g = replica.graph();
  constexpr int kFactors = 5;
  std::vector<Output> weights;
  for (int i = 0; i < kFactors; ++i) {
    const int64_t size = 2 + i;
    weights.push_back(g.Read(g.AddVariable(
        {.name = fmt::format("factor{}", i),
         .dtype = DType::kF64,
         .shape = Shape({size, size}),
         .initializer = [](RandomStream& random, MutableTensorView value) {
           for (double& v : value.Span<double>()) v = 0.5 * random.Normal();
         }})));
  }
  std::vector<ReplicaContext::Piece> inverses;
  std::vector<ReplicaContext::Piece> traces;
  std::vector<ReplicaContext::Piece> sizes;
  for (const Output& w : weights) {
    const int64_t size = w.shape()[0];
    std::vector<double> one(static_cast<size_t>(size * size));
    for (int64_t i = 0; i < size; ++i) {
      one[static_cast<size_t>(i * (size + 1))] = 1.0;
    }
    const Output identity =
        g.Constant(TensorView(DType::kF64, Shape({size, size}), one.data()));
    inverses.emplace_back([=]() -> std::vector<Output> {
      const Output a =
          graph::Add(graph::MatMul(w, w, {.transpose_a = true}), identity);
      // the trace is at least the largest eigenvalue
      const Output trace = graph::ReduceSum(graph::Mul(a, identity));
      Output x = graph::Div(identity, trace);
      for (int k = 0; k < 25; ++k) {
        const Output rest =
            graph::Sub(graph::Mul(identity, 2.0), graph::MatMul(a, x));
        x = graph::MatMul(x, rest);
      }
      return {x, trace};
    });
    traces.emplace_back([=]() -> std::vector<Output> {
      return {graph::ReduceSum(graph::Square(w))};
    });
    sizes.emplace_back([=, &g]() -> std::vector<Output> {
      return {g.Scalar(static_cast<double>(size), DType::kI64)};
    });
  }
  StepOutputs outputs;
  const auto results = replica.MapGather(inverses);
  // of every piece, so that each gradient shows
  Output loss = g.Scalar(0.0, DType::kF64);
  for (size_t i = 0; i < results.size(); ++i) {
    outputs.values.emplace_back(fmt::format("inverse{}", i), results[i][0]);
    outputs.values.emplace_back(fmt::format("trace{}", i), results[i][1]);
    loss = graph::Add(loss, graph::ReduceSum(graph::Square(results[i][0])));
  }
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMin,
                            ReduceOp::kMax, ReduceOp::kProd}) {
    const Output trace = replica.MapReduce(traces, op)[0];
    outputs.values.emplace_back(ToString(op), trace);
    loss = graph::Add(loss, graph::Square(trace));
    if (op == ReduceOp::kMean) continue;
    outputs.values.emplace_back(
        fmt::format("size_{}", ToString(op)),
        graph::Cast(replica.MapReduce(sizes, op)[0], DType::kF64));
  }
  const std::vector<Output> gradients =
      replica.MeanGradients(graph::Gradients(loss, weights));
  for (size_t i = 0; i < gradients.size(); ++i) {
    outputs.values.emplace_back(fmt::format("gradient{}", i), gradients[i]);
  }
  // every step has a batch
  outputs.values.emplace_back("x", graph::ReduceSum(batch.at("x")));
  return outputs;
}

inline std::map<std::string, std::vector<double>> FactorValues(
    const ReplicationConfig& config) {
  const auto replicator = MakeReplicator(config, /*seed=*/5);
  const auto input =
      replicator->MakeInput(Rows(config.replicas, 1, WholeValue));
  const auto step = replicator->Build(*input, FactorStep);
  EXPECT_EQ(step->Run(kNoWait), NextResult::kOk);
  std::map<std::string, std::vector<double>> values;
  for (const char* const name : {"inverse", "trace", "gradient"}) {
    for (int i = 0; i < 5; ++i) {
      const std::string full = fmt::format("{}{}", name, i);
      values[full] = Values(*step, full);
    }
  }
  for (const char* const name :
       {"sum", "mean", "min", "max", "prod", "size_sum", "size_min", "size_max",
        "size_prod"}) {
    values[name] = Values(*step, name);
  }
  return values;
}

// More pieces than replicas, or fewer: all get what one computes alone.
inline void CheckSharesWork(const ReplicationConfig& config) {
  const auto one = FactorValues({.backend = config.backend});
  const auto many = FactorValues(config);
  for (const auto& [name, value] : one) {
    if (name.starts_with("gradient")) {
      const std::vector<double> zero(value.size());
      EXPECT_LE(NormOfDifference(many.at(name), value),
                1e-9 * std::max(1.0, NormOfDifference(value, zero)))
          << name;
    } else if (name == "sum" || name == "mean") {
      EXPECT_LE(NormOfDifference(many.at(name), value), 1e-9) << name;
    } else {
      EXPECT_EQ(many.at(name), value) << name;
    }
  }
  // of 2, 3, 4, 5 and 6, though some replicas may have no piece
  EXPECT_EQ(many.at("size_sum"), std::vector{20.0});
  EXPECT_EQ(many.at("size_min"), std::vector{2.0});
  EXPECT_EQ(many.at("size_max"), std::vector{6.0});
  EXPECT_EQ(many.at("size_prod"), std::vector{720.0});
}

// Two pieces that read the same three variables of one shape, on replicas that
// compute one each: their gradients are computed in different orders.
inline StepOutputs ProductStep(ReplicaContext& replica, const Inputs& batch) {
  Graph& g = replica.graph();
  std::vector<Output> weights;
  weights.reserve(3);
  for (int i = 0; i < 3; ++i) {
    weights.push_back(g.Read(g.AddVariable(
        {.name = fmt::format("w{}", i),
         .dtype = DType::kF64,
         .shape = Shape({2}),
         .initializer = [i](RandomStream&, MutableTensorView value) {
           value.Span<double>()[0] = 2.0 + i;
           value.Span<double>()[1] = 5.0 + 2.0 * i;
         }})));
  }
  std::vector<ReplicaContext::Piece> pieces;
  for (const double factor : {1.0, 10.0}) {
    pieces.emplace_back([=]() -> std::vector<Output> {
      const Output first =
          graph::Mul(graph::Mul(weights[0], factor), weights[1]);
      return {graph::ReduceSum(graph::Mul(first, weights[2]))};
    });
  }
  const Output loss = replica.MapReduce(pieces, ReduceOp::kSum)[0];
  const std::vector<Output> gradients =
      replica.MeanGradients(graph::Gradients(loss, weights));
  StepOutputs outputs;
  for (size_t i = 0; i < 3; ++i) {
    outputs.values.emplace_back(fmt::format("gradient{}", i), gradients[i]);
  }
  outputs.values.emplace_back("x", graph::ReduceSum(batch.at("x")));
  return outputs;
}

// The weights are (2, 5), (3, 7) and (4, 9), and the pieces count 11 times.
inline void CheckPiecesOfSeveralVariables(const ReplicationConfig& config) {
  const auto replicator = MakeReplicator(config, /*seed=*/5);
  const auto input =
      replicator->MakeInput(Rows(config.replicas, 1, WholeValue));
  const auto step = replicator->Build(*input, ProductStep);
  ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
  EXPECT_EQ(Values(*step, "gradient0"), (std::vector{132.0, 693.0}));
  EXPECT_EQ(Values(*step, "gradient1"), (std::vector{88.0, 495.0}));
  EXPECT_EQ(Values(*step, "gradient2"), (std::vector{66.0, 385.0}));
}

// A piece may make infinite constants and read tensors whose sum overflows.
inline StepOutputs InfinityStep(ReplicaContext& replica, const Inputs& batch) {
  Graph& g = replica.graph();
  const Output w = g.Read(
      g.AddVariable({.name = "w",
                     .dtype = DType::kF64,
                     .shape = Shape({3}),
                     .initializer = [](RandomStream&, MutableTensorView value) {
                       const auto elements = value.Span<double>();
                       for (size_t i = 0; i < 3; ++i) {
                         elements[i] = 0.5 + 0.5 * static_cast<double>(i);
                       }
                     }}));
  const Output large = graph::Mul(w, 1e308);
  const std::vector<ReplicaContext::Piece> pieces = {
      [=, &g]() -> std::vector<Output> {
        const Output masked =
            graph::Where(graph::Greater(w, g.Scalar(0.75, DType::kF64)), w,
                         g.Scalar(-INFINITY, DType::kF64));
        return {graph::ReduceSum(graph::Exp(masked))};
      },
      [=]() -> std::vector<Output> {
        return {graph::ReduceSum(graph::Mul(large, 1e-308))};
      }};
  StepOutputs outputs;
  Output loss = g.Scalar(0.0, DType::kF64);
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean}) {
    const Output result = replica.MapReduce(pieces, op)[0];
    outputs.values.emplace_back(ToString(op), result);
    loss = graph::Add(loss, result);
  }
  outputs.values.emplace_back(
      "gradient", replica.MeanGradients(graph::Gradients(loss, {w}))[0]);
  // every step has a batch
  outputs.values.emplace_back("x", graph::ReduceSum(batch.at("x")));
  return outputs;
}

inline void CheckPiecesMayBeInfinite(const ReplicationConfig& config) {
  const auto replicator = MakeReplicator(config, /*seed=*/5);
  const auto input =
      replicator->MakeInput(Rows(config.replicas, 1, WholeValue));
  const auto step = replicator->Build(*input, InfinityStep);
  ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
  const double sum = std::exp(1.0) + std::exp(1.5) + 3.0;
  EXPECT_NEAR(Values(*step, "sum")[0], sum, 1e-9);
  EXPECT_NEAR(Values(*step, "mean")[0], 0.5 * sum, 1e-9);
  const std::vector<double> gradient = {1.5, 1.5 * (std::exp(1.0) + 1.0),
                                        1.5 * (std::exp(1.5) + 1.0)};
  EXPECT_LE(NormOfDifference(Values(*step, "gradient"), gradient), 1e-9);
}

}  // namespace replicant::replicator
