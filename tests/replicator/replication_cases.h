#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/tensor/dtype.h"
#include "engine/graph/gradients.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/matmul.h"
#include "engine/graph/ops/reduce.h"
#include "engine/graph/ops/shape_ops.h"
#include "engine/graph/ops/state.h"
#include "engine/nn/optimizers.h"
#include "replicator/make_replicator.h"
#include "replicator/replicator.h"
#include "tests/support/message_of.h"

// Rules for every synchronous strategy: run in one process for in_graph, and by
// each process that mpirun starts for between_graph.
namespace replicant::replicator {

inline constexpr Clock::TimePoint kNoWait{};
inline constexpr int64_t kColumns = 3;

// Element (row, column) of a step's global batch.
using ValueFn =
    std::function<double(int64_t step, int64_t row, int64_t column)>;

// A batch "x" f64 [rows, 3] of values by global row, `length` times.
class RowsPipeline : public InputPipeline {
 public:
  RowsPipeline(const InputContext& context, int64_t global_rows, int64_t length,
               ValueFn value)
      : rows_(context.PipelineBatchSize(global_rows)),
        first_row_(context.pipeline_id * rows_),
        length_(length),
        value_(std::move(value)),
        specs_{{"x", DType::kF64, Shape({rows_, kColumns})}} {}

  const std::vector<InputSpec>& specs() const override { return specs_; }
  NextResult Next(Clock::TimePoint /*deadline*/,
                  std::span<const MutableTensorView> batch) override {
    if (is_late) return NextResult::kTimeout;
    if (step_ == length_) return NextResult::kEnd;
    const auto x = batch[0].Span<double>();
    for (int64_t i = 0; i < rows_ * kColumns; ++i) {
      x[static_cast<size_t>(i)] =
          value_(step_, first_row_ + i / kColumns, i % kColumns);
    }
    ++step_;
    return NextResult::kOk;
  }

  bool is_late = false;

 private:
  const int64_t rows_;
  const int64_t first_row_;
  const int64_t length_;
  const ValueFn value_;
  const std::vector<InputSpec> specs_;
  int64_t step_ = 0;
};

inline InputFn Rows(int64_t global_rows, int64_t length, const ValueFn& value) {
  return [=](const InputContext& context) {
    return std::make_unique<RowsPipeline>(context, global_rows, length, value);
  };
}

inline std::vector<double> Values(const Step& step, std::string_view name) {
  const auto span = step.value(name).Span<double>();
  return {span.begin(), span.end()};
}

// Whole numbers that differ from row to row.
inline double WholeValue(int64_t step, int64_t row, int64_t column) {
  return static_cast<double>((5 * row + 3 * column + step) % 7 + 1);
}

// Every primitive against what it should give, for replica `id` of `n` with one
// row each; the first step of whose values are seen here.
inline void CheckPrimitives(
    const ReplicationConfig& config,
    const kernels::BackendFactory& make_backend = kernels::MakeBackend) {
  const int n = config.replicas;
  const auto replicator =
      MakeReplicator(config, /*seed=*/1, /*rank=*/{}, make_backend);
  ASSERT_EQ(replicator->num_replicas(), n);
  const int id = replicator->process_id() * config.replicas_per_process;
  const auto input = replicator->MakeInput(Rows(n, 2, WholeValue));
  const int source = n - 1;
  const auto step = replicator->Build(*input, [&](ReplicaContext& replica,
                                                  const Inputs& batch) {
    const Output x = batch.at("x");
    // a row for every replica
    std::vector<Output> rows;
    rows.reserve(static_cast<size_t>(n));
    for (int r = 0; r < n; ++r) rows.push_back(graph::Mul(x, r + 1.0));
    const auto twice = [](Output v) { return graph::Mul(v, 2.0); };
    return StepOutputs{
        .values = {{"sum", replica.AllSum(x)},
                   {"mean", replica.AllReduce(x, ReduceOp::kMean)},
                   {"min", replica.AllMin(x)},
                   {"max", replica.AllMax(x)},
                   {"prod", replica.AllReduce(x, ReduceOp::kProd)},
                   {"gathered", replica.AllGather(x)},
                   {"scattered", replica.ReduceScatter(graph::Concat(rows, 0),
                                                       ReduceOp::kSum)},
                   {"broadcast", replica.Broadcast(x, source)},
                   {"twice", replica.MapReduce(twice, x, ReduceOp::kSum)},
                   {"all_twice", replica.MapGather(twice, x)}},
        .updates = {}};
  });
  for (int64_t s = 0; s < 2; ++s) {
    ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
    EXPECT_EQ(step->value("gathered").shape(), Shape({n, 1, kColumns}));
    for (int64_t c = 0; c < kColumns; ++c) {
      double sum = 0.0;
      double prod = 1.0;
      double min = 1e9;
      double max = -1e9;
      for (int64_t r = 0; r < n; ++r) {
        const double x = WholeValue(s, r, c);
        sum += x;
        prod *= x;
        min = std::min(min, x);
        max = std::max(max, x);
        const auto at = static_cast<size_t>(r * kColumns + c);
        EXPECT_EQ(Values(*step, "gathered")[at], x);
        EXPECT_EQ(Values(*step, "all_twice")[at], 2.0 * x);
      }
      const auto at = static_cast<size_t>(c);
      EXPECT_EQ(Values(*step, "sum")[at], sum);
      EXPECT_DOUBLE_EQ(Values(*step, "mean")[at], sum / n);
      EXPECT_EQ(Values(*step, "min")[at], min);
      EXPECT_EQ(Values(*step, "max")[at], max);
      EXPECT_EQ(Values(*step, "prod")[at], prod);
      EXPECT_EQ(Values(*step, "scattered")[at], sum * (id + 1.0));
      EXPECT_EQ(Values(*step, "broadcast")[at], WholeValue(s, source, c));
      EXPECT_EQ(Values(*step, "twice")[at], 2.0 * sum);
    }
  }
  EXPECT_EQ(step->Run(kNoWait), NextResult::kEnd);
}

// A loss of one replica that goes through every differentiable primitive. If
// the replicas may compute differently they weigh it differently, and it goes
// through Broadcast, too, whose gradient is 0 on all but one.
inline Output LossThroughPrimitives(ReplicaContext& replica, Output x,
                                    bool may_differ) {
  const int n = replica.num_replicas();
  const double weight = may_differ ? 1.0 + 0.5 * replica.replica_id() : 1.0;
  std::vector<Output> rows;
  rows.reserve(static_cast<size_t>(n));
  for (int r = 0; r < n; ++r) rows.push_back(graph::Mul(x, r + 0.5));
  const Output stacked = graph::Concat(rows, 0);
  const Output y = replica.AllReduce(graph::Square(x), ReduceOp::kMean);
  std::vector<Output> terms = {
      graph::Square(replica.AllSum(graph::Square(x))),
      graph::Mul(y, x),
      graph::Square(replica.AllMax(x)),
      graph::Square(replica.AllMin(x)),
      graph::Exp(graph::Mul(replica.AllGather(x), 0.1)),
      graph::Square(replica.ReduceScatter(stacked, ReduceOp::kSum)),
      graph::Square(replica.ReduceScatter(stacked, ReduceOp::kMean))};
  if (may_differ) {
    terms.push_back(graph::Mul(graph::Square(replica.Broadcast(x, n - 1)), x));
  }
  Output loss = graph::ReduceSum(terms[0]);
  for (size_t i = 1; i < terms.size(); ++i) {
    loss = graph::Add(loss, graph::ReduceSum(terms[i]));
  }
  return graph::Mul(loss, weight);
}

// d(sum of all losses)/dx of every replica, against central differences. With
// a third derivative of order 10 and a step of 1e-4 these are off by about
// 1e-7, and rounding of losses of order 100 adds 1e-10.
inline void CheckGradients(const ReplicationConfig& config,
                           bool may_differ = true) {
  const int n = config.replicas;
  const auto replicator = MakeReplicator(config, /*seed=*/1);
  constexpr double kStep = 1e-4;
  // steps: the point itself, then each element of each row up and down
  const auto value = [n](int64_t step, int64_t row, int64_t column) {
    const double x =
        std::sin(1.7 * static_cast<double>(row * kColumns + column)) +
        0.05 * static_cast<double>(row);
    if (step == 0) return x;
    const int64_t moved = (step - 1) / 2;
    if (moved != row * kColumns + column) return x;
    return x + (step % 2 == 1 ? kStep : -kStep);
  };
  const auto input =
      replicator->MakeInput(Rows(n, 1 + 2 * n * kColumns, value));
  const auto step = replicator->Build(
      *input, [&](ReplicaContext& replica, const Inputs& batch) {
        const Output x = batch.at("x");
        const Output loss = LossThroughPrimitives(replica, x, may_differ);
        return StepOutputs{
            .values = {{"loss", replica.AllSum(loss)},
                       {"gradient",
                        replica.AllGather(graph::Gradients(loss, {x})[0])}},
            .updates = {}};
      });
  ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
  const std::vector<double> gradient = Values(*step, "gradient");
  ASSERT_EQ(gradient.size(), static_cast<size_t>(n * kColumns));
  for (size_t i = 0; i < gradient.size(); ++i) {
    ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
    const double up = Values(*step, "loss")[0];
    ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
    const double down = Values(*step, "loss")[0];
    EXPECT_NEAR(gradient[i], (up - down) / (2.0 * kStep), 2e-6) << i;
  }
}

// A small network that is trained, with a statistic that every replica keeps
// of its rows, and one that only the first replica's rows count for.
inline StepOutputs NetworkStep(ReplicaContext& replica, const Inputs& batch) {
  Graph& g = replica.graph();
  const Output x = batch.at("x");
  const auto variable = [&](const std::string& name, const Shape& shape,
                            bool is_trainable,
                            graph::ReplicaAgreement agreement) {
    return g.AddVariable(
        {.name = name,
         .dtype = DType::kF64,
         .shape = shape,
         .initializer =
             [](RandomStream& random, MutableTensorView value) {
               for (double& v : value.Span<double>()) v = random.Normal();
             },
         .is_trainable = is_trainable,
         .agreement = agreement});
  };
  using graph::ReplicaAgreement;
  const VariableId first =
      variable("first", Shape({kColumns, 40}), true, ReplicaAgreement::kMean);
  const VariableId second =
      variable("second", Shape({40, 1}), true, ReplicaAgreement::kMean);
  const VariableId mean =
      variable("mean", Shape({kColumns}), false, ReplicaAgreement::kMean);
  const VariableId last =
      variable("last", Shape({kColumns}), false, ReplicaAgreement::kFirst);
  const nn::StepCounter counter = nn::AddStepCounter(g, "step");
  const Output hidden = graph::Tanh(graph::MatMul(x, g.Read(first)));
  const Output error =
      graph::Sub(graph::MatMul(hidden, g.Read(second)),
                 graph::ReduceSum(x, {.axes = {1}, .keep_dims = true}));
  const Output loss = graph::ReduceMean(graph::Square(error));
  const std::vector<VariableId> parameters = {first, second};
  const Optimizer adam =
      replica.WrapOptimizer([&](const std::vector<VariableId>& variables,
                                const std::vector<Output>& gradients) {
        return nn::Adam(replica, "adam", variables, gradients,
                        g.Scalar(0.01, DType::kF64), counter.value, {},
                        {.max_global_norm = 1.0});
      });
  const Output update =
      adam(parameters, graph::Gradients(loss, {g.Read(first), g.Read(second)}));
  const Output rows_mean = graph::ReduceMean(x, {.axes = {0}});
  const Output moved = graph::Assign(
      g, mean,
      graph::Add(graph::Mul(g.Read(mean), 0.9), graph::Mul(rows_mean, 0.1)));
  const Output kept = graph::Assign(g, last, rows_mean);
  return {.values = {{"loss", replica.AllReduce(loss, ReduceOp::kMean)}},
          .updates = {update, moved, kept, counter.advance}};
}

inline double RealValue(int64_t step, int64_t row, int64_t column) {
  return std::sin(static_cast<double>(step * 131 + row * 17 + column * 3));
}

// The variables of type T, by name.
template <typename T>
std::map<std::string, std::vector<T>> VariablesOf(Replicator& replicator) {
  std::map<std::string, std::vector<T>> variables;
  for (const auto& [name, variable] : replicator.variables().variables()) {
    if (variable.spec.dtype != kDTypeOf<T>) continue;
    const HostTensor value = replicator.variables().Get(name);
    const auto span = value.Span<T>();
    variables[name] = {span.begin(), span.end()};
  }
  return variables;
}

// The variables after ten steps on batches of 16 rows.
inline std::map<std::string, std::vector<double>> TrainNetwork(
    const ReplicationConfig& config, InputMode mode = InputMode::kPerWorker) {
  const auto replicator = MakeReplicator(config, /*seed=*/3);
  const auto input = replicator->MakeInput(Rows(16, 10, RealValue), mode);
  const auto step = replicator->Build(*input, NetworkStep);
  while (step->Run(kNoWait) == NextResult::kOk) {
  }
  return VariablesOf<double>(*replicator);
}

inline double NormOfDifference(const std::vector<double>& a,
                               const std::vector<double>& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

// N replicas learn what one learns from the same batches, and bit by bit the
// same however their input comes.
inline void CheckTrainsAsOneReplica(const ReplicationConfig& config) {
  const auto one = TrainNetwork({.backend = config.backend});
  const auto many = TrainNetwork(config);
  ASSERT_EQ(one.size(), many.size());
  for (const auto& [name, value] : one) {
    // of the first replica's rows only
    if (name == "last") continue;
    EXPECT_LE(NormOfDifference(value, many.at(name)), 1e-9) << name;
  }
  for (size_t c = 0; c < kColumns; ++c) {
    double mean = 0.0;
    const int64_t rows = 16 / config.replicas;
    for (int64_t r = 0; r < rows; ++r) {
      mean +=
          RealValue(9, r, static_cast<int64_t>(c)) / static_cast<double>(rows);
    }
    EXPECT_NEAR(many.at("last")[c], mean, 1e-12);
  }
  for (const InputMode mode : {InputMode::kSingle, InputMode::kPerReplica}) {
    EXPECT_EQ(TrainNetwork(config, mode), many) << static_cast<int>(mode);
  }
}

// Every replica sums its rows, and reads a variable that a program writes.
inline StepOutputs OwnSumStep(ReplicaContext& replica, const Inputs& batch) {
  Graph& g = replica.graph();
  const VariableId sum =
      g.AddVariable({.name = "sum",
                     .dtype = DType::kF64,
                     .shape = Shape({1, kColumns}),
                     .is_trainable = false,
                     .agreement = graph::ReplicaAgreement::kPerReplica});
  const VariableId other = g.AddVariable(
      {.name = "other", .dtype = DType::kF64, .shape = Shape({})});
  const Output next = graph::Add(g.Read(sum), batch.at("x"));
  return {.values = {{"sums", replica.AllGather(next)},
                     {"others", replica.AllGather(g.Read(other))}},
          .updates = {graph::Assign(g, sum, next)}};
}

// A kPerReplica variable stays each replica's own while others are written,
// until the program writes it.
inline void CheckKeepsVariablesPerReplica(const ReplicationConfig& config) {
  const int n = config.replicas;
  const auto replicator = MakeReplicator(config, /*seed=*/1);
  const auto input = replicator->MakeInput(Rows(n, 3, WholeValue));
  const auto step = replicator->Build(*input, OwnSumStep);
  const auto write = [&](const char* name, const Shape& shape, double value) {
    if (replicator->process_id() != 0) return;
    const std::vector<double> values(kColumns, value);
    replicator->variables().Set(name,
                                TensorView(DType::kF64, shape, values.data()));
  };
  const auto check_sums = [&](const std::function<double(int64_t)>& expected) {
    ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
    for (int64_t r = 0; r < n; ++r) {
      EXPECT_EQ(Values(*step, "sums")[static_cast<size_t>(r * kColumns)],
                expected(r))
          << "replica " << r;
    }
  };
  check_sums([](int64_t r) { return WholeValue(0, r, 0); });
  write("other", Shape({}), 2.5);
  check_sums(
      [](int64_t r) { return WholeValue(0, r, 0) + WholeValue(1, r, 0); });
  EXPECT_EQ(Values(*step, "others"),
            std::vector<double>(static_cast<size_t>(n), 2.5));
  write("sum", Shape({1, kColumns}), 10.0);
  check_sums([](int64_t r) { return 10.0 + WholeValue(2, r, 0); });
  replicator->Stop();
}

}  // namespace replicant::replicator
