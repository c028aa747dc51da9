#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "engine/runtime/variable_store.h"
#include "evaluation/evaluation_log.h"

namespace replicant::evaluation {

// The policy of a run with the largest mean return in an evaluation, kept as a
// checkpoint of the policy's variables alone:
//
//   RUN/best/step-000000012000
//
// `evaluator --checkpoint` takes it; a run cannot resume from it.
//
// Thread-safety: one thread at a time; one process writes.
class BestPolicy {
 public:
  explicit BestPolicy(std::filesystem::path run_folder)
      : run_folder_(std::move(run_folder)) {}

  // Replaces the kept policy by `policy` if its evaluation `record` has a
  // larger mean return. A failure is logged, and the kept policy stays.
  void Offer(const EvaluationRecord& record,
             const runtime::VariableStore& policy, int64_t agent_steps);

  struct Kept {
    std::filesystem::path checkpoint;
    double mean_return = 0.0;
  };
  // Returns the best policy; std::nullopt if there is no readable one.
  static std::optional<Kept> Find(const std::filesystem::path& run_folder);

 private:
  const std::filesystem::path run_folder_;
};

}  // namespace replicant::evaluation
