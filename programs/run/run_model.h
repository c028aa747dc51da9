#pragma once

#include <filesystem>
#include <string>

#include "env/task_registry.h"
#include "programs/run/run_config.h"

namespace replicant::programs {

// Keeps a copy of a run's own model in RUN/model, or in RUN/model-2, ... if
// that holds another one, and returns `resolved_yaml` with task.mjcf set to the
// copy, relative to the run's folder. A copy from an earlier start is used
// again. Returns `resolved_yaml` unchanged for a model of the Control Suite, or
// one already in the folder. Compiles the model and its copy: throws
// ConfigError, leaving no copy, if they differ in anything but paths of files.
// Throws IoError if the model does not load.
std::string KeepModel(const RunConfig& config, const env::TaskRegistry& tasks,
                      const std::filesystem::path& run_folder,
                      const std::string& resolved_yaml);

}  // namespace replicant::programs
