#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "engine/graph/ops/random.h"
#include "replicator/make_replicator.h"
#include "tests/replicator/replication_cases.h"

// Both updates of a small GAN in one step, for every strategy. The losses are
// least squares (arXiv:1611.04076).
namespace replicant::replicator {

using Variables = std::map<std::string, std::vector<double>>;

inline constexpr int64_t kGanRows = 16;  // of an update
inline constexpr int64_t kGanUpdates = 6;

struct GanNetworks {
  explicit GanNetworks(Graph& g) : graph(g) {
    generator = {Add("g1", Shape({2, 5})), Add("g2", Shape({5, kColumns}))};
    discriminator = {Add("d1", Shape({kColumns, 6})), Add("d2", Shape({6, 1}))};
  }

  VariableId Add(const char* name, const Shape& shape) const {
    return graph.AddVariable(
        {.name = name,
         .dtype = DType::kF64,
         .shape = shape,
         .initializer = [](RandomStream& random, MutableTensorView value) {
           for (double& v : value.Span<double>()) v = random.Normal();
         }});
  }
  // [B, 2] -> [B, kColumns]
  Output Generate(Output z) const { return Through(generator, z); }
  // [B, kColumns] -> [B, 1]
  Output Judge(Output x) const { return Through(discriminator, x); }
  Output Through(const std::vector<VariableId>& weights, Output x) const {
    const Output hidden = graph::Tanh(graph::MatMul(x, graph.Read(weights[0])));
    return graph::MatMul(hidden, graph.Read(weights[1]));
  }
  std::vector<Output> Read(const std::vector<VariableId>& weights) const {
    return {graph.Read(weights[0]), graph.Read(weights[1])};
  }

  Graph& graph;
  std::vector<VariableId> generator, discriminator;
};

inline Output Latent(ReplicaContext& replica, const char* stream, Output step,
                     int64_t rows) {
  const auto range = replica.Rows(rows);
  return graph::RandomNormal({.name = stream,
                              .step = step,
                              .first_row = range.first_row,
                              .row_offset = range.row_offset},
                             DType::kF64, Shape({rows, 2}));
}

// The discriminator's update: two optimizers, one for each layer.
inline StepOutputs DiscriminatorPhase(ReplicaContext& replica,
                                      const Inputs& batch) {
  Graph& g = replica.graph();
  const GanNetworks networks(g);
  const nn::StepCounter counter = nn::AddStepCounter(g, "d_step");
  const Output x = batch.at("x");
  const Output fake = graph::StopGradient(
      networks.Generate(Latent(replica, "d_z", counter.value, x.shape()[0])));
  const Output loss = graph::Add(
      graph::ReduceMean(graph::Square(graph::Add(networks.Judge(x), -1.0))),
      graph::ReduceMean(graph::Square(networks.Judge(fake))));
  const std::vector<Output> gradients =
      graph::Gradients(loss, networks.Read(networks.discriminator));
  const Optimizer adam =
      replica.WrapOptimizer([&](const std::vector<VariableId>& variables,
                                const std::vector<Output>& mean) {
        return nn::Adam(replica, "d_adam", variables, mean,
                        g.Scalar(0.02, DType::kF64), counter.value);
      });
  const Optimizer sgd =
      replica.WrapOptimizer([&](const std::vector<VariableId>& variables,
                                const std::vector<Output>& mean) {
        return nn::Sgd(replica, "d_sgd", variables, mean,
                       g.Scalar(0.05, DType::kF64), {.momentum = 0.5});
      });
  return {.values = {{"discriminator_loss",
                      replica.AllReduce(loss, ReduceOp::kMean)}},
          .updates = {adam({networks.discriminator[0]}, {gradients[0]}),
                      sgd({networks.discriminator[1]}, {gradients[1]}),
                      counter.advance}};
}

// The generator's, by the newest discriminator. It also learns the batch
// itself, so that it matters which batch a later phase is given.
inline StepOutputs GeneratorPhase(ReplicaContext& replica,
                                  const Inputs& batch) {
  Graph& g = replica.graph();
  const GanNetworks networks(g);
  const nn::StepCounter counter = nn::AddStepCounter(g, "g_step");
  const Output image = networks.Generate(
      Latent(replica, "g_z", counter.value, batch.at("x").shape()[0]));
  const Output loss = graph::Add(
      graph::ReduceMean(graph::Square(graph::Add(networks.Judge(image), -1.0))),
      graph::ReduceMean(graph::Square(graph::Sub(image, batch.at("x")))));
  const Optimizer adam =
      replica.WrapOptimizer([&](const std::vector<VariableId>& variables,
                                const std::vector<Output>& mean) {
        return nn::Adam(replica, "g_adam", variables, mean,
                        g.Scalar(0.02, DType::kF64), counter.value);
      });
  return {
      .values = {{"generator_loss", replica.AllReduce(loss, ReduceOp::kMean)}},
      .updates = {
          adam(networks.generator,
               graph::Gradients(loss, networks.Read(networks.generator))),
          counter.advance}};
}

// Batches of an accumulating training: those of one that learns from all rows
// of an update at once, cut.
inline InputFn GanRows(int accumulation_steps, int64_t length) {
  const int64_t rows = kGanRows / accumulation_steps;
  return Rows(rows, length * accumulation_steps,
              [=](int64_t step, int64_t row, int64_t column) {
                return RealValue(step / accumulation_steps,
                                 step % accumulation_steps * rows + row,
                                 column);
              });
}

// The variables after kGanUpdates updates of each network, without sums; also
// the losses of the last step.
inline Variables TrainGan(const ReplicationConfig& config,
                          const ProcessRank& rank = {}) {
  const auto replicator = MakeReplicator(config, /*seed=*/3, rank);
  EXPECT_EQ(replicator->accumulation_steps(), config.accumulation_steps);
  const auto input =
      replicator->MakeInput(GanRows(config.accumulation_steps, kGanUpdates));
  const auto step =
      replicator->BuildJoint(*input, {DiscriminatorPhase, GeneratorPhase});
  while (step->Run(kNoWait) != NextResult::kEnd) {
  }
  Variables result;
  if (replicator->process_id() == 0) {
    result = VariablesOf<double>(*replicator);
    std::erase_if(result, [](const auto& entry) {
      return entry.first.starts_with("accumulation/");
    });
    for (const char* const name : {"d_step", "g_step"}) {
      const HostTensor count = replicator->variables().Get(name);
      result[name] = {static_cast<double>(count.Span<int64_t>()[0])};
    }
    for (const char* const name : {"discriminator_loss", "generator_loss"}) {
      result[name] = Values(*step, name);
    }
  }
  replicator->Stop();
  return result;
}

inline void ExpectNear(const Variables& a, const Variables& b,
                       double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, value] : a) {
    // with accumulation the losses come from the last batch
    if (name.ends_with("_loss")) continue;
    EXPECT_LE(NormOfDifference(value, b.at(name)), tolerance) << name;
  }
}

// N replicas, or several batches, learn what one learns from whole batches.
inline void CheckTrainsGanAsOneReplica(const ReplicationConfig& config) {
  const Variables one =
      TrainGan({.backend = config.has_pjrt() ? "reference" : config.backend});
  ASSERT_EQ(one.at("g_step"), std::vector{double{kGanUpdates}});
  for (const int accumulation_steps : {1, 2}) {
    SCOPED_TRACE(accumulation_steps);
    if (kGanRows % (accumulation_steps * config.replicas) != 0) continue;
    ReplicationConfig own = config;
    own.accumulation_steps = accumulation_steps;
    const Variables many = TrainGan(own);
    // of other processes
    if (!many.empty()) ExpectNear(one, many, 1e-9);
  }
}

}  // namespace replicant::replicator
