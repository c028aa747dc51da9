#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "agents/d4pg/agent.h"
#include "agents/transition_batch.h"
#include "base/rng.h"
#include "learner/workloads/agent/agent_step.h"
#include "replicator/make_replicator.h"
#include "tests/learner/workloads/training.h"
#include "tests/learner/workloads/variables_of.h"

// D4PG's whole update on N replicas against the same on one: the same global
// batches, ten steps.
namespace replicant::learner {

inline constexpr int64_t kReplicaBatch = 16;
inline constexpr int kReplicaSteps = 10;

struct D4pgCase {
  agents::d4pg::D4pgConfig agent;
  agents::LearningSpec spec;
};

inline D4pgCase StateCase(DType dtype) {
  D4pgCase c;
  c.agent.networks.policy_hidden_sizes = {24, 24};
  c.agent.networks.critic_hidden_sizes = {32, 24};
  c.agent.distribution.num_atoms = 21;
  c.agent.critic_optimizer.learning_rate = 1e-3;
  c.agent.policy_optimizer.learning_rate = 1e-3;
  c.agent.pre_tanh_penalty_weight = 0.1;
  c.agent.behaviour_cloning = {
      .weight = 0.5, .final_weight = 0.1, .decay_start = 2, .decay_updates = 5};
  // so low that it matters
  c.agent.critic_optimizer.max_gradient_norm = 0.5;
  c.spec = {.task = {.observation = Shape({5}),
                     .action_minimum = {-1.0, -1.0},
                     .action_maximum = {1.0, 1.0}},
            .discount = 0.9,
            .has_prior = true,
            .dtype = dtype};
  return c;
}

// As StateCase(), with running statistics of observations and returns.
inline D4pgCase StatisticsCase(DType dtype) {
  D4pgCase c = StateCase(dtype);
  c.agent.observations.normalize = agents::Normalization::kRunning;
  c.agent.distribution.range = agents::d4pg::Range::kRunning;
  return c;
}

inline D4pgCase PixelCase(DType dtype) {
  D4pgCase c = StateCase(dtype);
  c.agent.networks.encoder.kind = agents::d4pg::EncoderKind::kCustom;
  c.agent.networks.encoder.channels = {4, 4};
  c.agent.networks.encoder.kernels = {3, 3};
  c.agent.networks.encoder.strides = {2, 1};
  c.agent.networks.embedding_size = 10;
  c.agent.random_shift = 2;
  c.spec.task.has_pixels = true;
  c.spec.task.observation = Shape({12, 12, 3});
  return c;
}

// With a model, whose contrast compares the rows of all replicas. Of three
// steps a row has two targets.
inline D4pgCase RepresentationCase(DType dtype) {
  D4pgCase c = StateCase(dtype);
  c.agent.behaviour_cloning = {};
  c.agent.networks.embedding_size = 10;
  c.agent.networks.embedding_activation =
      agents::d4pg::EmbeddingActivation::kElu;
  c.agent.networks.has_shared_embedding = true;
  c.agent.representation = {.horizon = 3,
                            .targets = 2,
                            .action_embedding_size = 4,
                            .hidden_sizes = {12},
                            .state_action_size = 8,
                            .contrast_weight = 1.0};
  c.agent.encoder_optimizer.learning_rate = 1e-3;
  c.spec.has_prior = false;
  c.spec.window = 3;
  c.spec.window_observations = 2;
  return c;
}

// Batches by (step, global row).
class TransitionRows : public replicator::InputPipeline {
 public:
  TransitionRows(const D4pgCase& c, const replicator::InputContext& context)
      : rows_(context.PipelineBatchSize(kReplicaBatch)),
        first_row_(context.pipeline_id * rows_) {
    for (auto& tensor : agents::TransitionTensors(c.spec, rows_)) {
      specs_.push_back({std::move(tensor.name), tensor.dtype, tensor.shape});
    }
  }

  const std::vector<replicator::InputSpec>& specs() const override {
    return specs_;
  }
  replicator::NextResult Next(
      Clock::TimePoint /*deadline*/,
      std::span<const MutableTensorView> batch) override {
    if (step_ == kReplicaSteps) return replicator::NextResult::kEnd;
    for (size_t i = 0; i < specs_.size(); ++i) {
      for (int64_t row = 0; row < rows_; ++row) {
        RandomStream random(
            /*seed=*/7,
            fmt::format("{}/{}/{}", specs_[i].name, step_, first_row_ + row));
        const MutableTensorView values = batch[i].Slice(row, row + 1);
        Fill(random, values);
        if (specs_[i].name != "window_follows") continue;
        if (values.dtype() == DType::kF64) {
          Follow<double>(random, values);
        } else {
          Follow<float>(random, values);
        }
      }
    }
    ++step_;
    return replicator::NextResult::kOk;
  }
  replicator::NextResult NextAhead(
      Clock::TimePoint deadline,
      std::span<const MutableTensorView> batch) override {
    return Next(deadline, batch);
  }

 private:
  static void Fill(RandomStream& random, const MutableTensorView& row) {
    if (row.dtype() == DType::kU8) {
      for (uint8_t& x : row.Span<uint8_t>()) {
        x = static_cast<uint8_t>(random.UniformInt(256));
      }
    } else if (row.dtype() == DType::kF64) {
      for (double& x : row.Span<double>()) x = random.Uniform(0.05, 0.95);
    } else {
      for (float& x : row.Span<float>()) {
        x = static_cast<float>(random.Uniform(0.05, 0.95));
      }
    }
  }

  // Each target follows another step. row [1, T, H]
  template <typename T>
  static void Follow(RandomStream& random, const MutableTensorView& row) {
    const auto num_targets = static_cast<size_t>(row.shape()[1]);
    const auto horizon = static_cast<size_t>(row.shape()[2]);
    const std::span<T> follows = row.Span<T>();
    std::ranges::fill(follows, T{0});
    const auto first = static_cast<size_t>(random.UniformInt(horizon));
    for (size_t t = 0; t < num_targets; ++t) {
      follows[t * horizon + (first + t) % horizon] = T{1};
    }
  }

  const int64_t rows_;
  const int64_t first_row_;
  std::vector<replicator::InputSpec> specs_;
  int step_ = 0;
};

struct D4pgRun {
  Variables first;  // the start
  Variables last;
  // by global row
  std::vector<double> priorities;
  int64_t num_steps = 0;
};

inline Training D4pgTraining(const D4pgCase& c) {
  const std::shared_ptr<const agents::Agent> agent =
      agents::d4pg::MakeAgent(c.agent);
  return {.input =
              [c](const replicator::InputContext& context) {
                return std::make_unique<TransitionRows>(c, context);
              },
          .steps = {[c, agent](replicator::ReplicaContext& replica,
                               const replicator::Inputs& inputs) {
            return BuildAgentStep(replica, inputs, *agent, c.spec).outputs;
          }},
          .start =
              [c, agent](runtime::VariableStore& variables) {
                RunAgentStart(*agent, c.spec, kReplicaSeed, variables);
              },
          .num_steps = kReplicaSteps};
}

inline D4pgRun TrainD4pg(
    const D4pgCase& c, const replicator::ReplicationConfig& config,
    const kernels::BackendFactory& make_backend = kernels::MakeBackend) {
  const Training training = D4pgTraining(c);
  const auto replicator = replicator::MakeReplicator(config, kReplicaSeed,
                                                     /*rank=*/{}, make_backend);
  const auto input = replicator->MakeInput(training.input);
  const auto step = replicator->Build(*input, training.steps[0]);
  training.start(replicator->variables());
  D4pgRun run;
  run.first = ValuesOf(replicator->variables());
  while (step->Run({}) == replicator::NextResult::kOk) ++run.num_steps;
  run.last = ValuesOf(replicator->variables());
  const TensorView priority = step->value("priority");
  if (priority.dtype() == DType::kF64) {
    const auto span = priority.Span<double>();
    run.priorities.assign(span.begin(), span.end());
  } else {
    const auto span = priority.Span<float>();
    run.priorities.assign(span.begin(), span.end());
  }
  return run;
}

inline void CheckSameLearning(const D4pgCase& c, const D4pgRun& one,
                              const D4pgRun& many) {
  CheckSameTraining(one.first, one.last, many.last, c.spec.dtype);
  ASSERT_EQ(one.priorities.size(), static_cast<size_t>(kReplicaBatch));
  ASSERT_EQ(many.priorities.size(), static_cast<size_t>(kReplicaBatch));
  EXPECT_LE(
      Distance(one.priorities, many.priorities),
      1e-3 * Distance(one.priorities, std::vector<double>(kReplicaBatch)));
}

inline void CheckLearnsAsOneReplica(
    const D4pgCase& c, const replicator::ReplicationConfig& config) {
  CheckSameLearning(
      c, TrainD4pg(c, {.backend = config.backend, .threads = config.threads}),
      TrainD4pg(c, config));
}

}  // namespace replicant::learner
