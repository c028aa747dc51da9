#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/graph/ops/elementwise.h"
#include "replicator/make_replicator.h"
#include "tests/replicator/replication_cases.h"

// Trainings with gradients of which each replica sends a part.
namespace replicant::replicator {

struct TopKRun {
  std::vector<float> losses;  // by step
  std::map<std::string, std::vector<float>> variables;
};

// A network of 1 x 200 + 200 x 1 weights per column that learns a function of
// 16 rows by gradient descent.
inline TopKRun TrainWithTopK(const ReplicationConfig& config, int num_steps) {
  const auto replicator = MakeReplicator(config, /*seed=*/3);
  const auto input = replicator->MakeInput(Rows(16, num_steps, RealValue));
  const auto step = replicator->Build(*input, [](ReplicaContext& replica,
                                                 const Inputs& batch) {
    Graph& g = replica.graph();
    const Output x = graph::Cast(batch.at("x"), DType::kF32);
    const auto weights = [&](const std::string& name, const Shape& shape) {
      return g.AddVariable(
          {.name = name,
           .dtype = DType::kF32,
           .shape = shape,
           .initializer = [](RandomStream& random, MutableTensorView value) {
             for (float& v : value.Span<float>()) {
               v = 0.2F * static_cast<float>(random.Normal());
             }
           }});
    };
    const std::vector<VariableId> parameters = {
        weights("first", Shape({kColumns, 200})),
        weights("second", Shape({200, 1}))};
    const Output hidden = graph::Tanh(graph::MatMul(x, g.Read(parameters[0])));
    const Output error =
        graph::Sub(graph::MatMul(hidden, g.Read(parameters[1])),
                   graph::ReduceSum(x, {.axes = {1}, .keep_dims = true}));
    const Output loss = graph::ReduceMean(graph::Square(error));
    const Optimizer sgd =
        replica.WrapOptimizer([&](const std::vector<VariableId>& variables,
                                  const std::vector<Output>& gradients) {
          return nn::Sgd(replica, "sgd", variables, gradients,
                         g.Scalar(0.02, DType::kF32));
        });
    const Output update = sgd(
        parameters,
        graph::Gradients(loss, {g.Read(parameters[0]), g.Read(parameters[1])}));
    return StepOutputs{
        .values = {{"loss", replica.AllReduce(loss, ReduceOp::kMean)}},
        .updates = {update}};
  });
  TopKRun run;
  while (step->Run(kNoWait) == NextResult::kOk) {
    run.losses.push_back(step->value("loss").Span<float>()[0]);
  }
  run.variables = VariablesOf<float>(*replicator);
  return run;
}

}  // namespace replicant::replicator
