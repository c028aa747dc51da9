#include "learner/workloads/d4pg/d4pg_workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <span>

#include "agents/agent_steps.h"
#include "agents/d4pg/update.h"
#include "core/base/error.h"

namespace replicant::learner {
namespace {

namespace d4pg = agents::d4pg;
using graph::Output;
using replicator::ReduceOp;

d4pg::AgentSpec AgentSpecOf(const agents::TaskSpec& task) {
  return {.observation = task.observation, .action_size = task.action_size()};
}

// The targets begin as copies of what they follow.
void CopyToTargets(const D4pgWorkloadOptions& options,
                   runtime::VariableStore& variables) {
  graph::Graph graph(options.seed);
  const Output copy =
      d4pg::BuildTargetCopy(graph, options.agent, AgentSpecOf(options.task),
                            options.support.num_atoms);
  runtime::Executor(graph, {.outputs = {}, .updates = {copy}}, variables).Run();
}

double Mean(std::span<const float> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) /
         static_cast<double>(values.size());
}

}  // namespace

D4pgWorkloadOptions MakeD4pgWorkloadOptions(const LearnerConfig& learner,
                                            const d4pg::D4pgConfig& agent,
                                            const agents::TaskSpec& task,
                                            double discount, int64_t seed) {
  return {.agent = agent,
          .task = task,
          .support = d4pg::MakeSupport(agent.distribution, discount,
                                       task.largest_reward),
          .batch_size = learner.batch_size,
          .replication = learner.replication,
          .seed = static_cast<uint64_t>(seed)};
}

D4pgWorkload::D4pgWorkload(const D4pgWorkloadOptions& options,
                           TransitionSource* source)
    : options_(options),
      source_(*source),
      replicator_(
          replicator::Replicator::Create(options.replication, options.seed)) {
  input_ =
      replicator_->MakeInput([this](const replicator::InputContext& context) {
        auto pipeline = std::make_unique<TransitionPipeline>(
            options_.task, context.PerReplicaBatchSize(options_.batch_size),
            options_.replication.threads, &source_);
        pipeline_ = pipeline.get();
        return pipeline;
      });
  step_ =
      replicator_->Build(*input_, [this](replicator::ReplicaContext& replica,
                                         const replicator::Inputs& inputs) {
        return BuildStep(replica, inputs);
      });
  CopyToTargets(options_, replicator_->variables());
}

replicator::StepOutputs D4pgWorkload::BuildStep(
    replicator::ReplicaContext& replica, const replicator::Inputs& inputs) {
  const Output reward = inputs.at("reward");
  const d4pg::Update update = d4pg::BuildUpdate(
      replica.graph(), options_.agent, AgentSpecOf(options_.task),
      options_.support,
      {.observation = inputs.at("observation"),
       .action = inputs.at("action"),
       .reward = reward,
       .discount = inputs.at("discount"),
       .next_observation = inputs.at("next_observation"),
       .importance_weight = inputs.at("importance_weight")},
      {.mean_gradients =
           [&](const std::vector<Output>& gradients) {
             return replica.AllReduce(gradients, ReduceOp::kMean);
           },
       .max = [&](Output x) { return replica.AllMax(x); },
       .first_row = replica.replica_id() * reward.shape()[0]});

  // each replica adds the same ones
  published_.clear();
  for (const auto& variable : replica.graph().variables()) {
    if (variable.name.starts_with("encoder/") ||
        variable.name.starts_with("policy/")) {
      published_.push_back(variable.name);
    }
  }
  return {.values = {{"critic_loss",
                      replica.AllReduce(update.critic_loss, ReduceOp::kMean)},
                     {"policy_loss",
                      replica.AllReduce(update.policy_loss, ReduceOp::kMean)},
                     {"priority", update.priority},
                     {"value", update.value}},
          .updates = update.updates};
}

NextResult D4pgWorkload::Step(Clock::TimePoint deadline) {
  const NextResult result = step_->Run(deadline);
  if (result == NextResult::kOk) {
    // a replay that lost steps counts them late
    num_agent_steps_ =
        std::max(num_agent_steps_, pipeline_->batch().total_steps);
    source_.UpdatePriorities(pipeline_->batch(),
                             step_->value("priority").Span<float>());
  }
  return result;
}

std::map<std::string, std::string> D4pgWorkload::State() const {
  return {{agents::kAgentStepsKey, std::to_string(num_agent_steps_)}};
}

void D4pgWorkload::Restore(const std::map<std::string, std::string>& state) {
  const auto steps = agents::AgentStepsIn(state);
  if (!steps) {
    throw InvalidArgument(
        fmt::format("checkpoint: no {}", agents::kAgentStepsKey));
  }
  num_agent_steps_ = *steps;
}

std::map<std::string, std::string> D4pgWorkload::PublishedMetadata() const {
  return State();
}

std::vector<std::pair<std::string, double>> D4pgWorkload::Scalars() const {
  const auto scalar = [&](const char* name) {
    return static_cast<double>(step_->value(name).Span<float>()[0]);
  };
  return {{"critic_loss", scalar("critic_loss")},
          {"policy_loss", scalar("policy_loss")},
          {"value", Mean(step_->value("value").Span<float>())},
          {"reward", Mean(pipeline_->batch().rewards)},
          {"priority", Mean(step_->value("priority").Span<float>())}};
}

}  // namespace replicant::learner
