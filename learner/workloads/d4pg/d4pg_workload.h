#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agents/d4pg/config.h"
#include "agents/d4pg/distribution.h"
#include "agents/task_spec.h"
#include "core/replicator/replicator.h"
#include "learner/learner_config.h"
#include "learner/workload.h"
#include "learner/workloads/d4pg/batch_pipeline.h"
#include "learner/workloads/d4pg/transition_source.h"

namespace replicant::learner {

struct D4pgWorkloadOptions {
  agents::d4pg::D4pgConfig agent;
  agents::TaskSpec task;
  agents::d4pg::Support support;
  int64_t batch_size = 256;
  graph::Precision precision = graph::Precision::kF32;
  replicator::ReplicationConfig replication;
  uint64_t seed = 0;
};

// What a run's sections say. `discount` is the replay's, per agent step. Throws
// what agents::d4pg::MakeSupport() throws.
D4pgWorkloadOptions MakeD4pgWorkloadOptions(
    const LearnerConfig& learner, const agents::d4pg::D4pgConfig& agent,
    const agents::TaskSpec& task, double discount, int64_t seed);

// D4PG (arXiv:1804.08617): draws n-step transitions, makes the whole update of
// agents/d4pg/update.h as one step, sends the new priorities back.
class D4pgWorkload : public Workload {
 public:
  // `source` outlives the workload. Throws ConfigError if the networks do not
  // fit the task, and what Replicator::Create() throws.
  D4pgWorkload(const D4pgWorkloadOptions& options, TransitionSource* source);
  // On a replicator of options.replication. Its first process has the source;
  // the others follow it (learner/learner.h), and give null.
  D4pgWorkload(const D4pgWorkloadOptions& options,
               std::unique_ptr<replicator::Replicator> replicator,
               TransitionSource* source);

  NextResult Step(Clock::TimePoint deadline) override;
  int64_t NumNewSteps() const override { return step_->num_steps(); }
  std::string WaitReason() const override {
    return "transitions to learn from";
  }
  double WaitSeconds() const override;
  void Stop() override { replicator_->Stop(); }
  runtime::VariableStore& variables() override {
    return replicator_->variables();
  }
  // critic_loss, policy_loss, and the batch's mean value, reward and priority.
  std::vector<std::pair<std::string, double>> Scalars() const override;
  // The encoder's and the policy's, with the agent steps that they are from.
  std::vector<std::string> PublishedVariables() const override {
    return published_;
  }
  std::map<std::string, std::string> PublishedMetadata() const override;
  // Of all that actors have brought to the replay.
  int64_t NumFrames() const override {
    return num_agent_steps_ * options_.task.action_repeat;
  }
  // The agent steps: everything else that is random is keyed by a variable.
  std::map<std::string, std::string> State() const override;
  void Restore(const std::map<std::string, std::string>& state) override;

  void LimitInput(int64_t num_batches) override {
    source_->SetLimit(num_batches);
  }
  void PauseInput(bool is_paused) override;
  bool IsInputDrained() const override;
  void StartSavingInput(uint64_t id,
                        const std::filesystem::path& folder) override {
    source_->StartCheckpoint(id, folder);
  }
  InputPart PollSavedInput() override { return source_->PollCheckpoint(); }

 private:
  // Of the last step.
  const replay::Batch& batch() const {
    return pipelines_.at(step_->group())->batch();
  }

  const D4pgWorkloadOptions options_;
  TransitionSource* const source_;
  std::unique_ptr<replicator::Replicator> replicator_;
  // by group; input_ owns them, and there are none where another process has
  // the source
  std::map<int, TransitionPipeline*> pipelines_;
  std::unique_ptr<replicator::Input> input_;
  std::unique_ptr<replicator::Step> step_;
  std::vector<std::string> published_;
  int64_t num_agent_steps_ = 0;
};

}  // namespace replicant::learner
