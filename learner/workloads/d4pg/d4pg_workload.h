#pragma once

#include <cstdint>
#include <functional>
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

  NextResult Step(Clock::TimePoint deadline) override;
  std::string WaitReason() const override {
    return "transitions to learn from";
  }
  double WaitSeconds() const override { return pipeline_->wait_seconds(); }
  runtime::VariableStore& variables() override {
    return replicator_->variables();
  }
  // critic_loss, policy_loss, and the batch's mean value, reward and priority.
  std::vector<std::pair<std::string, double>> Scalars() const override;
  // The encoder's and the policy's.
  std::vector<std::string> PublishedVariables() const override {
    return published_;
  }

 private:
  replicator::StepOutputs BuildStep(replicator::ReplicaContext& replica,
                                    const replicator::Inputs& inputs);

  const D4pgWorkloadOptions options_;
  TransitionSource& source_;
  std::unique_ptr<replicator::Replicator> replicator_;
  TransitionPipeline* pipeline_ = nullptr;  // input_ owns it
  std::unique_ptr<replicator::Input> input_;
  std::unique_ptr<replicator::Step> step_;
  std::vector<std::string> published_;
};

}  // namespace replicant::learner
