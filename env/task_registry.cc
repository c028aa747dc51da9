#include "env/task_registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/nearest.h"

namespace replicant::env {
namespace {

std::filesystem::path ModelPath(const TaskDefinition& task,
                                const EnvironmentOptions& options) {
  if (!options.mjcf.empty()) return options.mjcf;
  if (task.model.is_absolute()) return task.model;
  const std::filesystem::path folder =
      options.suite_folder.empty() ? SuiteModelFolder() : options.suite_folder;
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) {
    throw IoError(fmt::format(
        "{}: no folder {} with the Control Suite's models; hint: {}", task.name,
        folder.string(),
        options.suite_folder.empty()
            ? "run scripts/setup, or set REPLICANT_SUITE_MODELS to the folder "
              "dm_control/suite of a dm_control 1.0.50"
            : "without suite_folder, or with an empty one, the installed "
              "models are taken"));
  }
  return folder / task.model;
}

}  // namespace

std::filesystem::path SuiteModelFolder() {
  // a program reads it once at its start, before it has threads
  const char* folder =
      std::getenv("REPLICANT_SUITE_MODELS");  // NOLINT(concurrency-mt-unsafe)
  if (folder != nullptr && *folder != '\0') return folder;
  return REPLICANT_SUITE_FOLDER;
}

MjModelPtr LoadModel(const TaskDefinition& task,
                     const EnvironmentOptions& options) {
  const bool is_text = options.mjcf.empty() && !task.model_text.empty();
  const std::filesystem::path path =
      is_text ? std::filesystem::path("the text of task " + task.name)
              : ModelPath(task, options);
  const MjSpecPtr spec =
      is_text ? ParseMjcfText(task.model_text, path) : ParseMjcf(path);
  if (task.edit) task.edit(*spec);
  return CompileModel(*spec, path);
}

std::unique_ptr<ControlEnvironment> MakeEnvironment(
    const TaskDefinition& task, const EnvironmentOptions& options,
    const mjModel& model) {
  const RandomStream random(options.seed,
                            fmt::format("environment-{}", options.index));
  ControlOptions control = task.options;
  control.randomization = options.randomization;
  return std::make_unique<ControlEnvironment>(
      std::make_unique<Physics>(CopyModel(model), task.name), task.make_task(),
      control, random);
}

std::unique_ptr<ControlEnvironment> MakeEnvironment(
    const TaskDefinition& task, const EnvironmentOptions& options) {
  return MakeEnvironment(task, options, *LoadModel(task, options));
}

TaskRegistry::TaskRegistry(std::vector<TaskDefinition> tasks) {
  for (TaskDefinition& task : tasks) Add(std::move(task));
}

void TaskRegistry::Add(TaskDefinition task) {
  for (const TaskDefinition& other : tasks_) {
    if (other.name == task.name) {
      throw InvalidArgument(
          fmt::format("task '{}' is already registered", task.name));
    }
  }
  tasks_.push_back(std::move(task));
}

const TaskDefinition& TaskRegistry::Find(std::string_view name) const {
  const auto found = std::ranges::find(tasks_, name, &TaskDefinition::name);
  if (found == tasks_.end()) throw InvalidArgument(ProblemOf(name));
  return *found;
}

std::string TaskRegistry::ProblemOf(std::string_view name) const {
  std::vector<std::string> names;
  for (const TaskDefinition& task : tasks_) {
    if (task.name == name) return "";
    names.push_back(task.name);
  }
  if (name == kPythonTask) {
    return fmt::format(
        "task '{}' is of a Python function; hint: `replicant`, Python's "
        "program, with {}=FILE.py:NAME",
        name, kMakeEnvVariable);
  }
  const std::string nearest = NearestName(name, names);
  return fmt::format(
      "task '{}' is not known{}; hint: `replicant train --list` or "
      "`env_rollout --list` prints all names",
      name,
      nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest));
}

}  // namespace replicant::env
