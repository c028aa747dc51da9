#include "ddpg.h"

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agents/agent.h"
#include "base/error.h"
#include "engine/graph/gradients.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/optimizer.h"
#include "engine/graph/ops/random.h"
#include "engine/graph/ops/reduce.h"
#include "engine/graph/ops/shape_ops.h"
#include "engine/nn/layers.h"
#include "engine/nn/optimizers.h"
#include "learner/workloads/agent/agent_workload.h"

namespace {

using namespace replicant;
using graph::Graph;
using graph::Output;
using graph::VariableId;

// Section `ddpg`.
struct DdpgConfig {
  int64_t hidden_size = 128;
  double learning_rate = 1e-3;
  double target_rate = 0.01;

  static DdpgConfig Read(config::Reader& reader) {
    DdpgConfig c;
    reader.Field("hidden_size", &c.hidden_size, {1, 4096},
                 "width of the hidden layers");
    reader.Field("learning_rate", &c.learning_rate, {0.0, 1.0},
                 "Adam's step size, of policy and critic");
    reader.Field("target_rate", &c.target_rate, {0.0, 1.0},
                 "rate at which the target networks follow, per update");
    return c;
  }
};

// Two hidden layers with relu: [B, in] -> [B, out].
class Mlp {
 public:
  Mlp(Graph& graph, const std::string& name, int64_t in, int64_t hidden,
      int64_t out)
      : layers_{{graph, name + "/0", in, hidden},
                {graph, name + "/1", hidden, hidden},
                {graph, name + "/2", hidden, out}} {}

  Output operator()(Output x) const {
    return layers_[2](graph::Relu(layers_[1](graph::Relu(layers_[0](x)))));
  }
  std::vector<VariableId> variables() const {
    std::vector<VariableId> all;
    for (const nn::Dense& layer : layers_) {
      all.insert(all.end(), layer.variables().begin(), layer.variables().end());
    }
    return all;
  }

 private:
  std::vector<nn::Dense> layers_;
};

// Policy and critic, and their slow copies under "target/".
struct Networks {
  Networks(Graph& graph, const DdpgConfig& config, const agents::TaskSpec& task)
      : Networks(graph, config.hidden_size, task.observation[0],
                 task.action_size()) {}
  Networks(Graph& graph, int64_t hidden, int64_t state, int64_t action)
      : policy(graph, "policy", state, hidden, action),
        critic(graph, "critic", state + action, hidden, 1),
        target_policy(graph, "target/policy", state, hidden, action),
        target_critic(graph, "target/critic", state + action, hidden, 1) {}

  static Output Act(const Mlp& policy, Output observation) {
    return graph::Tanh(policy(observation));
  }
  // [B]
  static Output Value(const Mlp& critic, Output observation, Output action) {
    return graph::Reshape(critic(graph::Concat({observation, action}, 1)),
                          {-1});
  }
  // Moves the targets towards the networks by `rate`.
  Output Follow(Graph& graph, double rate) const {
    std::vector<VariableId> targets = target_policy.variables();
    const std::vector<VariableId> more = target_critic.variables();
    targets.insert(targets.end(), more.begin(), more.end());
    std::vector<Output> sources;
    for (const Mlp* network : {&policy, &critic}) {
      for (const VariableId variable : network->variables()) {
        sources.push_back(graph.Read(variable));
      }
    }
    return graph::MovingAverageUpdate(targets, sources,
                                      graph.Scalar(rate, DType::kF32));
  }

  Mlp policy, critic, target_policy, target_critic;
};

class Ddpg : public agents::Agent {
 public:
  explicit Ddpg(const DdpgConfig& config) : config_(config) {}

  void Check(const agents::LearningSpec& spec) const override {
    if (spec.task.has_pixels) {
      throw ConfigError("ddpg: learns only from states; this task has pixels");
    }
  }

  Output BuildPolicy(Graph& graph, const agents::TaskSpec& task,
                     const agents::PolicyOptions& options) const override {
    const Mlp policy(graph, "policy", task.observation[0], config_.hidden_size,
                     task.action_size());
    const int64_t count = options.num_environments;
    const Output mean =
        Networks::Act(policy, graph.Input("observation", DType::kF32,
                                          Shape({count, task.observation[0]})));
    if (!options.has_noise) return mean;
    const Output scale =
        graph.Input("noise_scale", DType::kF32, Shape({count}));
    const Output noise = graph::RandomNormal(
        {.name = "exploration",
         .step = graph.Input("step", DType::kI64, Shape({})),
         .first_row = options.first_environment},
        DType::kF32, mean.shape());
    return graph::Clip(
        graph::Add(mean, graph::Mul(noise, graph::Reshape(scale, {count, 1}))),
        -1.0, 1.0);
  }

  agents::AgentUpdate BuildUpdate(
      nn::ReplicaContext& replica, const agents::LearningSpec& spec,
      const agents::TransitionBatch& batch) const override {
    Graph& graph = replica.graph();
    const Networks networks(graph, config_, spec.task);
    // critic: mean squared error to r + D Q'(s', pi'(s'))
    const Output next_value = Networks::Value(
        networks.target_critic, batch.next_observation,
        Networks::Act(networks.target_policy, batch.next_observation));
    const Output target = graph::StopGradient(
        graph::Add(batch.reward, graph::Mul(batch.discount, next_value)));
    const Output value =
        Networks::Value(networks.critic, batch.observation, batch.action);
    const Output error = graph::Sub(value, target);
    const Output critic_loss = graph::ReduceMean(
        graph::Mul(batch.importance_weight, graph::Square(error)));
    // policy: the critic's value of its actions
    const Output policy_loss = graph::Neg(graph::ReduceMean(
        Networks::Value(networks.critic, batch.observation,
                        Networks::Act(networks.policy, batch.observation))));

    const nn::StepCounter step = nn::AddStepCounter(graph);
    const auto train = [&](const char* name, Output loss,
                           const std::vector<VariableId>& parameters) {
      std::vector<Output> values;
      for (const VariableId id : parameters) values.push_back(graph.Read(id));
      return nn::Adam(replica, name, parameters,
                      replica.MeanGradients(graph::Gradients(loss, values)),
                      graph.Scalar(config_.learning_rate, DType::kF32),
                      step.value);
    };
    return {
        .losses = {{"critic_loss", critic_loss}, {"policy_loss", policy_loss}},
        .values = {{"value", value}},
        .priority = graph::Abs(error),
        .updates = {
            train("critic_adam", critic_loss, networks.critic.variables()),
            train("policy_adam", policy_loss, networks.policy.variables()),
            networks.Follow(graph, config_.target_rate), step.advance}};
  }

  std::vector<Output> BuildStart(
      Graph& graph, const agents::LearningSpec& spec) const override {
    return {Networks(graph, config_, spec.task).Follow(graph, 1.0)};
  }

  bool IsOfPolicy(std::string_view variable) const override {
    return variable.starts_with("policy/");
  }

 private:
  const DdpgConfig config_;
};

}  // namespace

replicant::learner::WorkloadDef DdpgAgent() {
  return learner::DefineAgent<DdpgConfig>(
      "ddpg", "the DDPG agent",
      [](const DdpgConfig& config) { return std::make_shared<Ddpg>(config); });
}
