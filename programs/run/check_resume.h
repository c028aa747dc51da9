#pragma once

#include <filesystem>
#include <string>

#include "agents/task_spec.h"
#include "base/error.h"
#include "evaluation/evaluation_config.h"
#include "programs/run/invocation.h"

namespace replicant::programs {

// A run that is to be resumed has reached one of its limits.
class RunIsComplete : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

// Throws ConfigError, with key and both values, if the run in `run_folder` has
// another seed, workload, task, form of rewards, observations, view, or n_step,
// discount, window or period of a table than `resolved_yaml`, the text of
// `config`: its replay would mix two meanings. Observations are compared as
// text, views by what they show. A run of images has the same batch size, too,
// since it counts its place among them in batches. A folder without a
// config.yaml has no run. Changes nothing.
void CheckSameRun(const RunConfig& config, const std::string& resolved_yaml,
                  const std::filesystem::path& run_folder);

// Checks that the run in `run_folder` can continue with the configuration,
// before any file of the run changes. Without a checkpoint, every configuration
// passes.
//
// Throws RunIsComplete if the run has reached one of its limits, and names the
// key to raise; ConfigError if the configured workload can load none of its
// checkpoints; IoError if they cannot be read. `task` is the task of a run with
// actors.
void CheckResume(const Invocation& invocation, const agents::TaskSpec& task,
                 const std::filesystem::path& run_folder);

// Which evaluation of the run has reached evaluation.stop_at_return, and the
// key to raise; "": none. Throws IoError.
std::string FindGoodReturn(const evaluation::EvaluationConfig& evaluation,
                           const std::filesystem::path& run_folder);

// Whether the run in `run_folder` has reached a limit in its configuration and
// has not failed. Its state then says `complete`, even if the run was stopped
// just before, or if the evaluation after its end was the first one that is
// good enough. Throws ConfigError and IoError.
bool CompleteAtLimit(const Registry& registry,
                     const std::filesystem::path& run_folder);

}  // namespace replicant::programs
