// a3c [REPLICAS]: learns to balance a pole by the asynchronous advantage
// actor-critic (Mnih et al. 2016, arXiv:1602.01783), with hogwild: replicas act
// and learn independently, without locks, on one copy of the variables. Each
// has an environment. Two steps share the replicas: `act` gives the policy for
// a replica's observation, `learn` updates the policy from the replica's steps.
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <vector>

#include "base/rng.h"
#include "engine/graph/gradients.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/indexing.h"
#include "engine/graph/ops/losses.h"
#include "engine/graph/ops/reduce.h"
#include "engine/graph/ops/shape_ops.h"
#include "engine/nn/layers.h"
#include "engine/nn/optimizers.h"
#include "engine/nn/trained_variables.h"
#include "replicator/make_replicator.h"
#include "replicator/replicator.h"

using namespace replicant;              // NOLINT
using namespace replicant::replicator;  // NOLINT

namespace {

constexpr int64_t kRollout = 32;  // steps of an update
constexpr double kDiscount = 0.99;

// Cart and pole of Barto, Sutton and Anderson (1983); a reward of 1 for each of
// at most 200 steps.
class CartPole {
 public:
  explicit CartPole(uint64_t seed) : random_(seed, "cartpole") { Reset(); }

  const std::array<double, 4>& state() const { return state_; }
  RandomStream& random() { return random_; }
  double mean_return() const { return mean_return_; }

  // Returns whether the episode has ended; a new episode has then begun.
  bool Step(bool right) {
    auto& [x, v, angle, spin] = state_;
    const double cosine = std::cos(angle);
    const double push =
        ((right ? 10.0 : -10.0) + 0.05 * spin * spin * std::sin(angle)) / 1.1;
    const double turn = (9.8 * std::sin(angle) - cosine * push) /
                        (0.5 * (4.0 / 3.0 - 0.1 * cosine * cosine / 1.1));
    x += 0.02 * v;
    v += 0.02 * (push - 0.05 * turn * cosine / 1.1);
    angle += 0.02 * spin;
    spin += 0.02 * turn;
    const bool ends =
        std::abs(x) > 2.4 || std::abs(angle) > 0.2095 || ++length_ == 200;
    if (ends) {
      mean_return_ += 0.05 * (length_ - mean_return_);
      Reset();
    }
    return ends;
  }

 private:
  void Reset() {
    for (double& s : state_) s = 0.02 * random_.Normal();
    length_ = 0;
  }

  RandomStream random_;
  std::array<double, 4> state_;
  int length_ = 0;
  double mean_return_ = 0.0;
};

// One replica's side of the world.
struct Actor {
  explicit Actor(uint64_t seed) : environment(seed) {}

  CartPole environment;
  bool wants_action = true;
  std::vector<std::array<double, 4>> states;
  std::vector<int32_t> actions;
  std::vector<bool> ends;
  double next_value = 0.0;  // of the state after the last one
};

// An actor's observation when it is about to act.
class ActInput : public InputPipeline {
 public:
  explicit ActInput(Actor* actor) : actor_(*actor) {}

  const std::vector<InputSpec>& specs() const override { return specs_; }
  NextResult Next(Clock::TimePoint /*deadline*/,
                  std::span<const MutableTensorView> batch) override {
    if (!std::exchange(actor_.wants_action, false)) return NextResult::kTimeout;
    for (size_t i = 0; i < 4; ++i) {
      batch[0].Span<float>()[i] =
          static_cast<float>(actor_.environment.state()[i]);
    }
    return NextResult::kOk;
  }

 private:
  Actor& actor_;
  const std::vector<InputSpec> specs_ = {{"state", DType::kF32, Shape({1, 4})}};
};

// An actor's steps with their returns, once there are enough.
class LearnInput : public InputPipeline {
 public:
  explicit LearnInput(Actor* actor) : actor_(*actor) {}

  const std::vector<InputSpec>& specs() const override { return specs_; }
  NextResult Next(Clock::TimePoint /*deadline*/,
                  std::span<const MutableTensorView> batch) override {
    if (actor_.actions.size() < kRollout + 1) return NextResult::kTimeout;
    double value = actor_.next_value;
    for (size_t i = kRollout; i-- > 0;) {
      value = 1.0 + (actor_.ends[i] ? 0.0 : kDiscount * value);
      batch[2].Span<float>()[i] = static_cast<float>(value);
      batch[1].Span<int32_t>()[i] = actor_.actions[i];
      for (size_t k = 0; k < 4; ++k) {
        batch[0].Span<float>()[4 * i + k] =
            static_cast<float>(actor_.states[i][k]);
      }
    }
    actor_.states.erase(actor_.states.begin(), actor_.states.end() - 1);
    actor_.actions.erase(actor_.actions.begin(), actor_.actions.end() - 1);
    actor_.ends.erase(actor_.ends.begin(), actor_.ends.end() - 1);
    return NextResult::kOk;
  }

 private:
  Actor& actor_;
  const std::vector<InputSpec> specs_ = {
      {"state", DType::kF32, Shape({kRollout, 4})},
      {"action", DType::kI32, Shape({kRollout}), /*num_classes=*/2},
      {"return", DType::kF32, Shape({kRollout})}};
};

struct Network {
  Network(Graph& g, Output state)
      : hidden(g, "hidden", 4, 64),
        policy(g, "policy", 64, 2),
        critic(g, "critic", 64, 1) {
    const Output features = graph::Tanh(hidden(state));
    logits = policy(features);
    value = graph::Reshape(critic(features), {state.shape()[0]});
  }

  nn::Dense hidden, policy, critic;
  Output logits, value;
};

StepOutputs Act(ReplicaContext& replica, const Inputs& batch) {
  const Network network(replica.graph(), batch.at("state"));
  return {.values = {{"policy", graph::Softmax(network.logits)},
                     {"value", network.value}}};
}

StepOutputs Learn(ReplicaContext& replica, const Inputs& batch) {
  Graph& g = replica.graph();
  const Network network(g, batch.at("state"));
  const Output advantage =
      graph::Sub(batch.at("return"), graph::StopGradient(network.value));
  const Output log_policy = graph::Neg(
      graph::SoftmaxCrossEntropyWithLabels(network.logits, batch.at("action")));
  const Output policy = graph::Softmax(network.logits);
  const Output entropy = graph::Neg(
      graph::ReduceSum(graph::Mul(policy, graph::Log(policy)), {.axes = {1}}));
  const Output error = graph::Sub(batch.at("return"), network.value);
  const Output loss = graph::ReduceMean(
      graph::Sub(graph::Mul(graph::Square(error), 0.05),
                 graph::Add(graph::Mul(log_policy, graph::Mul(advantage, 0.1)),
                            graph::Mul(entropy, 0.001))));
  const nn::TrainedVariables trained = nn::GradientsOf(loss, "");
  const nn::StepCounter step = nn::AddStepCounter(g);
  return {.values = {{"loss", loss}},
          .updates = {nn::Adam(replica, "adam", trained.variables,
                               replica.MeanGradients(trained.gradients),
                               g.Scalar(3e-3, DType::kF32), step.value),
                      step.advance}};
}

}  // namespace

int main(int argc, char** argv) try {
  const ReplicationConfig config{.strategy = &Strategy::kHogwild,
                                 .replicas = argc > 1 ? std::atoi(argv[1]) : 4};
  std::vector<std::unique_ptr<Actor>> actors;
  for (int i = 0; i < config.replicas; ++i) {
    actors.push_back(std::make_unique<Actor>(static_cast<uint64_t>(i)));
  }
  const auto actor_of = [&](const InputContext& context) {
    return actors[static_cast<size_t>(context.group_id)].get();
  };
  const auto replicator = MakeReplicator(config, /*seed=*/1);
  const auto views = replicator->MakeInput([&](const InputContext& context) {
    return std::make_unique<ActInput>(actor_of(context));
  });
  const auto rollouts = replicator->MakeInput([&](const InputContext& context) {
    return std::make_unique<LearnInput>(actor_of(context));
  });
  const auto act = replicator->Build(*views, Act);
  const auto learn = replicator->Build(*rollouts, Learn);
  double mean = 0.0;
  for (int frame = 0; frame < 200'000 && mean < 150.0;) {
    static_cast<void>(learn->Run({}));
    if (act->Run({}) != NextResult::kOk) continue;
    Actor& actor = *actors[static_cast<size_t>(act->group())];
    const bool right = actor.environment.random().Uniform() <
                       act->value("policy").Span<float>()[1];
    actor.next_value = act->value("value").Span<float>()[0];
    actor.states.push_back(actor.environment.state());
    actor.actions.push_back(right ? 1 : 0);
    actor.ends.push_back(actor.environment.Step(right));
    actor.wants_action = true;
    if (++frame % 10'000 != 0) continue;
    mean = 0.0;
    for (const auto& one : actors) {
      mean += one->environment.mean_return() / config.replicas;
    }
    std::printf("frames %d return %.1f\n", frame, mean);
  }
} catch (const std::exception& e) {
  std::fprintf(stderr, "a3c: %s\n", e.what());
  return 1;
}
