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
#include "env/model_randomization.h"
#include "env/mujoco.h"
#include "env/task.h"

namespace replicant::env {

// Name of the task whose environments a Python function makes, and the
// environment variable that names the function.
inline constexpr std::string_view kPythonTask = "python-environment";
inline constexpr const char* kMakeEnvVariable = "REPLICANT_MAKE_ENV";

// The caller's choices for MakeEnvironment().
struct EnvironmentOptions {
  uint64_t seed = 0;
  // Distinguishes environments with one seed: each has its own random streams.
  int64_t index = 0;
  // Replaces the task's model; empty for none.
  std::filesystem::path mjcf;
  // Folder with the Control Suite's models; empty: SuiteModelFolder().
  std::filesystem::path suite_folder;
  // What each episode draws of the model; see ControlOptions.
  std::vector<FieldRandomization> randomization = {};
};

// Everything needed to make an environment of one task.
struct TaskDefinition {
  // DOMAIN-TASK, for example "cheetah-run".
  std::string name;
  // The MJCF file; a relative path lies in the Control Suite's folder.
  std::filesystem::path model;
  ControlOptions options;
  // Edits the model before it is compiled; may be empty.
  std::function<void(mjSpec&)> edit;
  std::function<std::unique_ptr<Task>()> make_task;
  // Makes the whole environment if it is not a MuJoCo simulation. Such an
  // environment has no physics(), so nothing can draw it. The members above,
  // except `name`, are then ignored.
  std::function<std::unique_ptr<Environment>(const EnvironmentOptions&)>
      make_environment = {};
  // The MJCF itself, in place of the file `model`; empty: none.
  std::string model_text = {};
};

// Makes tasks of one class with fixed arguments; a value for make_task.
template <typename T, typename... Args>
std::function<std::unique_ptr<Task>()> TaskMaker(Args... args) {
  return [args...] { return std::make_unique<T>(args...); };
}

// The folder with the Control Suite's MJCF files: the environment variable
// REPLICANT_SUITE_MODELS or, if it is unset, the dm_control package of the
// build's configuration.
std::filesystem::path SuiteModelFolder();

// Reads, edits and compiles the task's model.
// Throws IoError with a hint if the model is missing or cannot be parsed.
MjModelPtr LoadModel(const TaskDefinition& task,
                     const EnvironmentOptions& options);

// Makes an environment with its own copy of `model`, from LoadModel(). Many
// environments of one task can share one load.
std::unique_ptr<ControlEnvironment> MakeEnvironment(
    const TaskDefinition& task, const EnvironmentOptions& options,
    const mjModel& model);
// As above, but loads the model itself.
std::unique_ptr<ControlEnvironment> MakeEnvironment(
    const TaskDefinition& task, const EnvironmentOptions& options);

// Tasks by name. A program starts from SuiteTasks() (env/tasks/suite.h) and
// adds its own.
//
// Thread-safety: const methods may run concurrently.
class TaskRegistry {
 public:
  TaskRegistry() = default;
  explicit TaskRegistry(std::vector<TaskDefinition> tasks);

  // Throws InvalidArgument if the name is taken.
  void Add(TaskDefinition task);

  // Throws InvalidArgument, with ProblemOf(name), if there is none.
  const TaskDefinition& Find(std::string_view name) const;
  // Why there is no such task, with the nearest name; "" if there is one.
  std::string ProblemOf(std::string_view name) const;

  const std::vector<TaskDefinition>& tasks() const { return tasks_; }

 private:
  std::vector<TaskDefinition> tasks_;
};

}  // namespace replicant::env
