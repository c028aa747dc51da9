#include "programs/deploy/deploy.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <system_error>

#include "base/check.h"
#include "base/config/document.h"
#include "base/error.h"
#include "base/fs.h"
#include "programs/run/check_run.h"

namespace replicant::programs {

std::string Render(const std::string& backend, const RenderInput& input) {
  using Part = std::string (*)(const RenderInput&);
  const std::map<std::string, Part> parts = {{"kubernetes", &RenderKubernetes},
                                             {"skypilot", &RenderSkypilot},
                                             {"slurm", &RenderSlurm}};
  const auto part = parts.find(backend);
  if (part == parts.end()) {
    throw ConfigError(fmt::format(
        "--render {}: no such backend; allowed: slurm, kubernetes, skypilot",
        backend));
  }
  // hosts join a run of SkyPilot as they join one of Kubernetes
  const bool is_slurm = backend == "slurm";
  RunConfig config = input.config;
  config.cluster.backend = is_slurm ? fleet::ClusterBackend::kSlurm
                                    : fleet::ClusterBackend::kKubernetes;
  // the host is not known yet, so any numeric address passes
  config.cluster.address = "0.0.0.0";
  CheckCluster(config);
  std::error_code error;
  if (std::filesystem::exists(input.folder) &&
      !std::filesystem::is_empty(input.folder, error)) {
    throw IoError(
        fmt::format("--to {}: it is not empty", input.folder.string()));
  }
  MakeFolders(input.folder);
  RenderInput whole = input;
  whole.resolved_yaml = WithSettings(
      input, {"cluster.backend=" + ToString(config.cluster.backend)});
  return part->second(whole);
}

std::string WithSettings(const RenderInput& input,
                         const std::vector<std::string>& settings) {
  return LoadRunConfig(config::Document::FromFile(
                           "config.yaml", settings,
                           [&](const std::filesystem::path& /*path*/) {
                             return input.resolved_yaml;
                           }),
                       input.registry)
      .resolved_yaml;
}

std::string FillIn(std::string_view text,
                   const std::vector<TemplateValue>& values) {
  std::string filled;
  while (!text.empty()) {
    const auto value =
        std::ranges::find_if(values, [&](const TemplateValue& one) {
          return text.starts_with("@" + one.name + "@");
        });
    // a character at a time, so that nothing is replaced in a value
    const size_t size = value == values.end() ? 1 : value->name.size() + 2;
    filled += value == values.end() ? text.substr(0, 1)
                                    : std::string_view(value->value);
    text.remove_prefix(size);
  }
  return filled;
}

JobResources SumOf(
    const fleet::ClusterConfig& cluster,
    const std::vector<std::pair<std::string, int64_t>>& processes) {
  JobResources sum;
  for (const auto& [name, count] : processes) {
    const fleet::RoleResources& role = cluster.roles.at(name);
    sum.cores += role.cores * count;
    sum.gpus += role.gpus * count;
    sum.memory_mb += role.memory_mb * count;
  }
  return sum;
}

int64_t ActorsPerHost(const RunConfig& config, int64_t num_hosts) {
  if (num_hosts == 0) return 0;
  const int64_t local =
      std::min(config.cluster.local_actors, config.actors.count);
  return (config.actors.count - local + num_hosts - 1) / num_hosts;
}

}  // namespace replicant::programs
