#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "actors/policy.h"
#include "agents/agent.h"
#include "agents/task_spec.h"
#include "engine/kernels/backend.h"
#include "engine/runtime/executor.h"
#include "engine/runtime/variable_store.h"

namespace replicant::actors {

struct PolicyRunnerOptions {
  std::string backend = "cpu";
  int threads = 1;
  int64_t num_environments = 1;
  // agents::PolicyOptions
  bool has_noise = true;
  bool is_evaluated = false;
  // Global number of environment 0: keys the noise.
  int64_t first_environment = 0;
  uint64_t seed = 0;
};

// A policy that this process computes for E environments at once.
//
// Thread-safety: one thread makes all calls.
class PolicyRunner : public Policy {
 public:
  // Throws ConfigError if the agent does not fit the task.
  PolicyRunner(const agents::Agent& agent, const agents::TaskSpec& task,
               const PolicyRunnerOptions& options);

  // Sets parameters that a learner published or a checkpoint holds. Throws
  // IoError, leaving the policy as it was, if they do not fit.
  void SetParameters(std::span<const std::byte> bytes,
                     const std::string& where);
  runtime::VariableStore& variables() { return variables_; }

  MutableTensorView observations() override { return observations_; }
  std::span<float> states() override { return states_; }
  std::span<float> noise_scales() override { return noise_scales_; }
  TensorView Act(int64_t step) override;

 private:
  std::unique_ptr<kernels::Backend> backend_;
  runtime::VariableStore variables_;
  runtime::Executor plan_;
  MutableTensorView observations_;
  std::span<float> states_;
  std::span<float> noise_scales_;
  int64_t* step_ = nullptr;
};

}  // namespace replicant::actors
