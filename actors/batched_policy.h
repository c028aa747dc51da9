#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "actors/policy_runner.h"

namespace replicant::actors {

// A policy for any number of rows, such as several actors' observations in one
// batch. It has plans for batches of 1, 2, 4, ... rows up to `max_rows` and
// runs the smallest that fits; more rows take several runs.
//
// The noise of a row is keyed by its place in the batch and by a count of runs,
// so no two rows in a server's life share noise. Each row has its own noise
// scale.
//
// Thread-safety: one thread makes all calls.
class BatchedPolicy {
 public:
  // Observations of one actor, and the destination of its actions.
  struct Rows {
    std::span<const std::byte> observations;  // [E, ...]
    std::span<const float> states;            // [E, S], in addition to pixels
    std::span<const float> noise_scales;      // [E]
    std::span<float> actions;                 // [E, A]
  };

  // `first_run` is the initial count of runs. The options num_environments and
  // first_environment are ignored. Throws what PolicyRunner's constructor
  // throws, and InvalidArgument unless max_rows > 0.
  BatchedPolicy(const agents::Agent& agent, const agents::TaskSpec& task,
                const PolicyRunnerOptions& options, int64_t max_rows,
                int64_t first_run = 0);

  // As PolicyRunner::SetParameters(), for all plans.
  void SetParameters(std::span<const std::byte> bytes,
                     const std::string& where);
  // Writes the actions of all rows, in [-1, 1].
  void Act(std::span<const Rows> all);

  int64_t observation_bytes() const { return observation_bytes_; }
  int64_t state_size() const { return state_size_; }
  int64_t action_size() const { return action_size_; }
  // Rows of the executed plans, padding included.
  int64_t num_computed_rows() const { return num_computed_rows_; }

 private:
  struct Plan {
    int64_t num_rows = 0;
    std::unique_ptr<PolicyRunner> runner;
  };
  // Source of one row of the batch.
  struct Row {
    std::span<const std::byte> observation;
    std::span<const float> state;
    float noise_scale = 0.0F;
    std::span<float> action;
  };

  // Precondition: no more rows than in the largest plan.
  void Run(std::span<const Row> rows);

  std::vector<Plan> plans_;  // by number of rows
  int64_t observation_bytes_ = 0;
  int64_t state_size_ = 0;
  int64_t action_size_ = 0;
  int64_t next_run_;
  int64_t num_computed_rows_ = 0;
};

}  // namespace replicant::actors
