#pragma once

#include <filesystem>
#include <string>

#include "env/task_registry.h"
#include "programs/run_config.h"

namespace replicant::programs {

// Keeps a run's own model with the run: copies it to RUN/model, or to
// RUN/model-2, ... if that is taken, and returns `resolved_yaml` with a
// task.mjcf that names the copy relative to the run's folder. Returns
// `resolved_yaml` as it is for a model of the Control Suite, and for one that
// lies in the folder already. Throws IoError.
std::string KeepModel(const RunConfig& config, const env::TaskRegistry& tasks,
                      const std::filesystem::path& run_folder,
                      const std::string& resolved_yaml);

}  // namespace replicant::programs
