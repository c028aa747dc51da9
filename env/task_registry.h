#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "env/control_environment.h"
#include "env/mujoco.h"
#include "env/task.h"

namespace replicant::env {

// All that is needed to make an environment of one task.
struct TaskDefinition {
  // DOMAIN-TASK, for example "cheetah-run".
  std::string name;
  // The MJCF file; a relative path is one in the Control Suite's folder.
  std::filesystem::path model;
  ControlOptions options;
  // Changes the model before it is compiled; may be empty.
  std::function<void(mjSpec&)> edit;
  std::function<std::unique_ptr<Task>()> make_task;
};

// A maker of tasks of one class with fixed arguments, for make_task.
template <typename T, typename... Args>
std::function<std::unique_ptr<Task>()> TaskMaker(Args... args) {
  return [args...] { return std::make_unique<T>(args...); };
}

// What the caller of MakeEnvironment() may choose.
struct EnvironmentOptions {
  uint64_t seed = 0;
  // Tells environments of one seed apart: each draws from its own streams.
  int64_t index = 0;
  // Replaces the task's model; empty for none.
  std::filesystem::path mjcf;
  // Where the Control Suite's models are; empty for SuiteModelFolder().
  std::filesystem::path suite_folder;
};

// The folder with the Control Suite's MJCF files: that of the environment
// variable REPLICANT_SUITE_MODELS, or else of the dm_control package that the
// build was configured with.
std::filesystem::path SuiteModelFolder();

// Reads, edits and compiles the task's model.
// Throws IoError, with what to do, if it is missing or cannot be understood.
MjModelPtr LoadModel(const TaskDefinition& task,
                     const EnvironmentOptions& options);

// An environment with its own copy of `model`, as LoadModel() gave it: many
// environments of one task need to load only once.
std::unique_ptr<ControlEnvironment> MakeEnvironment(
    const TaskDefinition& task, const EnvironmentOptions& options,
    const mjModel& model);
// The same with a model of its own.
std::unique_ptr<ControlEnvironment> MakeEnvironment(
    const TaskDefinition& task, const EnvironmentOptions& options);

// Tasks by name. A program makes one from SuiteTasks() (env/tasks/suite.h) and
// adds its own.
//
// Thread-safety: const methods may run concurrently.
class TaskRegistry {
 public:
  TaskRegistry() = default;
  explicit TaskRegistry(std::vector<TaskDefinition> tasks);

  // Throws InvalidArgument if the name is taken.
  void Add(TaskDefinition task);

  // Throws InvalidArgument, with the nearest name, if there is none.
  const TaskDefinition& Find(std::string_view name) const;

  const std::vector<TaskDefinition>& tasks() const { return tasks_; }

 private:
  std::vector<TaskDefinition> tasks_;
};

}  // namespace replicant::env
