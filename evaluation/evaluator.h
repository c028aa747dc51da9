#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "actors/policy_runner.h"
#include "agents/agent.h"
#include "agents/task_spec.h"
#include "env/task_config.h"
#include "env/task_registry.h"
#include "evaluation/evaluation.h"
#include "evaluation/evaluation_config.h"

namespace replicant::evaluation {

// The parts of an evaluation: an environment, the policy without noise, a
// camera.
//
// Thread-safety: one thread makes all calls.
class Evaluator {
 public:
  struct Options {
    env::TaskConfig task;
    std::shared_ptr<const agents::Agent> agent;
    EvaluationConfig evaluation;
    std::string backend = "cpu";
  };
  // Throws what MakeConfiguredEnvironment(), MakeTaskSpec() and PolicyRunner's
  // constructor throw.
  Evaluator(const env::TaskRegistry& registry, Options options);

  // The evaluated policy, for setting its parameters.
  actors::PolicyRunner& policy() { return policy_; }

  struct Trial {
    EvaluationResult result;
    // Why the requested video is missing; empty if there is one.
    std::string video_problem;
  };
  // Runs one evaluation and films its first episode into `video`, unless that
  // is empty. A failed video does not affect the result. Returns std::nullopt,
  // without a video, if `should_stop` ended the evaluation.
  std::optional<Trial> Run(const std::filesystem::path& video,
                           const std::function<bool()>& should_stop);

 private:
  const Options options_;
  const std::unique_ptr<env::Environment> environment_;
  const agents::TaskSpec task_;
  actors::PolicyRunner policy_;
};

// RUN/videos/step-000000012000.mp4.
std::filesystem::path VideoFile(const std::filesystem::path& run_folder,
                                int64_t step);

}  // namespace replicant::evaluation
