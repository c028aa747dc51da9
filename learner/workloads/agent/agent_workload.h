#pragma once

#include <any>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "agents/agent.h"
#include "agents/policy_topic.h"
#include "agents/task_spec.h"
#include "learner/workload.h"
#include "learner/workload_registry.h"
#include "learner/workloads/agent/resident_frames.h"
#include "learner/workloads/agent/transition_input.h"
#include "replicator/replicator.h"

namespace replicant::learner {

// Trains an agent: draws n-step transitions, runs the agent's whole update as
// one step, and sends the new priorities back.
class AgentWorkload : public Workload {
 public:
  // Only the first process has arguments.source; the others follow its steps
  // (learner/learner.h) and pass null. Throws what Agent::Check() and
  // replicator::Replicator::Build() throw.
  AgentWorkload(std::shared_ptr<const agents::Agent> agent,
                WorkloadArguments arguments);

  NextResult Step(Clock::TimePoint deadline) override;
  int64_t NumNewSteps() const override { return step_->num_steps(); }
  std::string WaitReason() const override {
    return "transitions to learn from";
  }
  double WaitSeconds() const override { return transitions_.WaitSeconds(); }
  void Stop() override { replicator_->Stop(); }
  runtime::VariableStore& variables() override {
    return replicator_->variables();
  }
  // The agent's losses and scalars; the means over the batch of its values, of
  // the reward and of the priority; the means, without prior data, of the draws
  // of an item ("times_sampled") and of its age ("sample_age", items that all
  // services inserted since); and the source's figures.
  std::vector<std::pair<std::string, double>> Scalars() const override;
  // The priority and the agent's values.
  std::vector<std::pair<std::string, std::span<const float>>> Histograms()
      const override;
  // The policy's variables, with the agent steps behind them.
  std::vector<std::string> PublishedVariables() const override {
    return published_;
  }
  std::string PublishedTopic() const override { return agents::kPolicyTopic; }
  std::map<std::string, std::string> PublishedMetadata() const override;
  // The variables that BuildModel() reads: of averages these alone.
  std::vector<std::string> ModelVariables() override;
  // The policy without noise: "observation" to "action" in [-1, 1].
  std::vector<std::pair<std::string, graph::Output>> BuildModel(
      graph::Graph& graph, int64_t batch_size) const override;
  // Frames of all steps that actors have sent to the replay.
  int64_t NumFrames() const override {
    return num_agent_steps_ * spec_.task.action_repeat;
  }
  std::optional<double> ReplayRatio(int64_t num_steps) const override;
  // The agent steps, and the steps that the replay lost, which a new reader
  // cannot know: everything else that is random is keyed by a variable.
  std::map<std::string, std::string> State() const override;
  void Restore(const std::map<std::string, std::string>& state) override;

  CheckpointedInput* input() override {
    return source_ ? &transitions_ : nullptr;
  }

 private:
  // Records the batch of the last step, and warns of returns that the agent
  // cannot represent.
  // Runs the step; an input that it cannot use is named with what to do.
  NextResult RunStep(Clock::TimePoint deadline);
  void Inspect(const TransitionPipeline& pipeline);
  // The pipeline of the last step.
  const TransitionPipeline& pipeline() const {
    return transitions_.pipeline(step_->group());
  }
  const replay::Batch& batch() const { return pipeline().batch(); }

  const std::shared_ptr<const agents::Agent> agent_;
  const agents::LearningSpec spec_;
  replay::BatchSource* const source_;
  std::unique_ptr<replicator::Replicator> replicator_;
  std::unique_ptr<ResidentFrames> frames_;  // null: they come with each batch
  // input_ owns its pipelines
  TransitionInput transitions_;
  std::unique_ptr<replicator::Input> input_;
  std::unique_ptr<replicator::Step> step_;
  // names of the agent's outputs
  std::vector<std::string> losses_, scalars_, values_;
  double warned_size_ = 0.0;  // of the misfit warned of last
  std::vector<std::string> published_;
  int64_t num_agent_steps_ = 0;
  int64_t lost_steps_ = 0;  // of the replay, as Batch::lost_steps
};

// Defines the workload that trains an agent. Config has `static Config
// Read(config::Reader&)`; `make_agent` makes a std::shared_ptr<Agent> of it.
template <typename Config, typename MakeAgent>
WorkloadDef DefineAgent(const std::string& name, const std::string& section_doc,
                        MakeAgent make_agent) {
  const auto make =
      [make_agent](
          const std::any& section) -> std::shared_ptr<const agents::Agent> {
    return make_agent(std::any_cast<const Config&>(section));
  };
  return {
      .name = name,
      .section = name,
      .section_doc = section_doc,
      .read_section = &ReadSection<Config>,
      .make_agent = make,
      .make = [make](const std::any& section,
                     WorkloadArguments arguments) -> std::unique_ptr<Workload> {
        return std::make_unique<AgentWorkload>(make(section),
                                               std::move(arguments));
      }};
}

}  // namespace replicant::learner
