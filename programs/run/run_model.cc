#include "programs/run/run_model.h"

#include <fmt/format.h>

#include <system_error>

#include "base/config/edit.h"
#include "base/error.h"
#include "env/model_copy.h"
#include "env/model_fields.h"

namespace replicant::programs {
namespace {

// `path` relative to `folder`; empty if it does not lie below.
std::filesystem::path PathWithin(const std::filesystem::path& path,
                                 const std::filesystem::path& folder) {
  auto relative = std::filesystem::weakly_canonical(path).lexically_relative(
      std::filesystem::weakly_canonical(folder));
  if (!relative.empty() && *relative.begin() == "..") relative.clear();
  return relative;
}

// The name of the first difference between `original` and the compiled copy; ""
// if there is none. Throws IoError if the copy does not load.
std::string DifferenceOf(const std::filesystem::path& copy,
                         const env::TaskDefinition& task,
                         const mjModel& original) {
  return env::FirstDifference(original, *env::LoadModel(task, {.mjcf = copy}));
}

bool IsEqualCopy(const std::filesystem::path& copy,
                 const env::TaskDefinition& task, const mjModel& original) {
  try {
    return DifferenceOf(copy, task, original).empty();
  } catch (const Error&) {
    return false;  // half a copy, or a model of another task
  }
}

// Copies the model into `folder`. Removes the copy and throws ConfigError if it
// is not `original`.
std::filesystem::path CopyEqualModel(const std::filesystem::path& model,
                                     const std::filesystem::path& folder,
                                     const env::TaskDefinition& task,
                                     const mjModel& original) {
  std::string problem;
  try {
    std::filesystem::path copy = env::CopyMjcf(model, folder);
    const std::string difference = DifferenceOf(copy, task, original);
    if (difference.empty()) return copy;
    problem = fmt::format("its {} differs", difference);
  } catch (const IoError& error) {
    problem = error.what();
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  throw ConfigError(
      fmt::format("task.mjcf: {}: the run's copy is not the same model: {}; "
                  "hint: put the model's files into its folder, and name each "
                  "by one name without folders",
                  model.string(), problem));
}

}  // namespace

std::string KeepModel(const RunConfig& config, const env::TaskRegistry& tasks,
                      const std::filesystem::path& run_folder,
                      const std::string& resolved_yaml) {
  const env::TaskDefinition& task = tasks.Find(config.task.name);
  if (task.make_environment) return resolved_yaml;
  const bool is_of_suite = config.task.mjcf.empty() && task.model.is_relative();
  const std::filesystem::path model =
      config.task.mjcf.empty() ? task.model
                               : std::filesystem::path(config.task.mjcf);
  if (is_of_suite) return resolved_yaml;
  const auto in_yaml = [&](const std::filesystem::path& path) {
    return config::WithValue(resolved_yaml, "task.mjcf", path.string());
  };
  // where another host, or another place of the folder, has it too
  const std::filesystem::path kept = PathWithin(model, run_folder);
  if (!kept.empty()) return in_yaml(kept);
  const env::MjModelPtr original = env::LoadModel(task, {.mjcf = model});
  std::filesystem::path folder = run_folder / "model";
  for (int i = 2; std::filesystem::exists(folder); ++i) {
    const std::filesystem::path copy = env::CopyOfMjcf(model, folder);
    if (IsEqualCopy(copy, task, *original)) {
      return in_yaml(copy.lexically_relative(run_folder));
    }
    folder = run_folder / fmt::format("model-{}", i);
  }
  return in_yaml(CopyEqualModel(model, folder, task, *original)
                     .lexically_relative(run_folder));
}

}  // namespace replicant::programs
