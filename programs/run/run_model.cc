#include "programs/run/run_model.h"

#include <fmt/format.h>

#include "base/config/edit.h"
#include "env/model_copy.h"

namespace replicant::programs {
namespace {

// Whether `path` lies below `folder`.
bool IsWithin(const std::filesystem::path& path,
              const std::filesystem::path& folder) {
  const auto relative =
      std::filesystem::weakly_canonical(path).lexically_relative(
          std::filesystem::weakly_canonical(folder));
  return !relative.empty() && *relative.begin() != "..";
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
  if (is_of_suite || IsWithin(model, run_folder)) return resolved_yaml;
  std::string name = "model";
  for (int i = 2; std::filesystem::exists(run_folder / name); ++i) {
    name = fmt::format("model-{}", i);
  }
  const auto copy = env::CopyMjcf(model, run_folder / name);
  return config::WithValue(resolved_yaml, "task.mjcf",
                           copy.lexically_relative(run_folder).string());
}

}  // namespace replicant::programs
