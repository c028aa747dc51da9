#include "learner/workloads/d4pg/d4pg_workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "agents/agent_steps.h"
#include "core/base/error.h"
#include "learner/workloads/d4pg/d4pg_step.h"

namespace replicant::learner {
namespace {

namespace d4pg = agents::d4pg;

d4pg::AgentSpec AgentSpecOf(const agents::TaskSpec& task) {
  return {.observation = task.observation, .action_size = task.action_size()};
}

// Of this process: the replicas wait while a batch is put in order.
int ThreadsOf(const replicator::ReplicationConfig& config) {
  return config.strategy == replicator::Strategy::kInGraph
             ? config.threads * config.replicas
             : config.threads * config.replicas_per_process;
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
          .precision = learner.precision,
          .replication = learner.replication,
          .seed = static_cast<uint64_t>(seed)};
}

D4pgWorkload::D4pgWorkload(const D4pgWorkloadOptions& options,
                           TransitionSource* source)
    : D4pgWorkload(
          options,
          replicator::Replicator::Create(options.replication, options.seed),
          source) {}

D4pgWorkload::D4pgWorkload(const D4pgWorkloadOptions& options,
                           std::unique_ptr<replicator::Replicator> replicator,
                           TransitionSource* source)
    : options_(options), source_(source), replicator_(std::move(replicator)) {
  // one process speaks with the replay, so that a checkpoint has one cut
  input_ = replicator_->MakeInput(
      [this](const replicator::InputContext& context) {
        auto pipeline = std::make_unique<TransitionPipeline>(
            options_.task, context.PipelineBatchSize(options_.batch_size),
            ThreadsOf(options_.replication), source_);
        pipelines_[context.group_id] = pipeline.get();
        return pipeline;
      },
      replicator::InputMode::kSingle);
  const d4pg::AgentSpec spec = AgentSpecOf(options_.task);
  const auto step = [&](replicator::ReplicaContext& replica,
                        const replicator::Inputs& inputs) {
    auto outputs =
        BuildD4pgStep(replica, inputs, options_.agent, spec, options_.support);
    // each replica adds the same ones
    published_.clear();
    for (const auto& variable : replica.graph().variables()) {
      if (variable.name.starts_with("encoder/") ||
          variable.name.starts_with("policy/")) {
        published_.push_back(variable.name);
      }
    }
    return outputs;
  };
  step_ = replicator_->Build(*input_, step,
                             {.passes = {.precision = options_.precision}});
  CopyToTargets(options_.agent, spec, options_.support.num_atoms, options_.seed,
                replicator_->variables());
}

NextResult D4pgWorkload::Step(Clock::TimePoint deadline) {
  const NextResult result = step_->Run(deadline);
  if (result == NextResult::kOk && !pipelines_.empty()) {
    // a replay that lost steps counts them late
    num_agent_steps_ = std::max(num_agent_steps_, batch().total_steps);
    source_->UpdatePriorities(batch(), step_->value("priority").Span<float>());
  }
  return result;
}

double D4pgWorkload::WaitSeconds() const {
  double sum = 0.0;
  for (const auto& [group, pipeline] : pipelines_) {
    sum += pipeline->wait_seconds();
  }
  return sum;
}

void D4pgWorkload::PauseInput(bool is_paused) {
  for (const auto& [group, pipeline] : pipelines_) {
    pipeline->SetPaused(is_paused);
  }
}

bool D4pgWorkload::IsInputDrained() const {
  // one that was found empty begins no step: then none is under way either
  return std::ranges::all_of(
      pipelines_, [](const auto& entry) { return entry.second->is_drained(); });
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
          {"reward", Mean(batch().rewards)},
          {"priority", Mean(step_->value("priority").Span<float>())}};
}

}  // namespace replicant::learner
