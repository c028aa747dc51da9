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
#include "programs/deploy/containers.h"
#include "programs/roles/fleet_roles.h"
#include "programs/run/check_run.h"

namespace replicant::programs {

std::string Render(const std::string& backend, const RenderInput& input) {
  struct Backend {
    std::vector<std::string> (*settings)(const RunConfig& config);
    std::string (*render)(const RenderInput& input);
  };
  const std::map<std::string, Backend> backends = {
      {"kubernetes", {&KubernetesSettings, &RenderKubernetes}},
      {"skypilot", {&SkypilotSettings, &RenderSkypilot}},
      {"slurm",
       {[](const RunConfig&) {
          return std::vector<std::string>{"cluster.backend=slurm"};
        },
        &RenderSlurm}}};
  const auto found = backends.find(backend);
  if (found == backends.end()) {
    throw ConfigError(fmt::format(
        "--render {}: no such backend; allowed: slurm, kubernetes, skypilot",
        backend));
  }
  if (!input.config.has_actors() && backend != "slurm") {
    throw ConfigError(fmt::format(
        "--render {}: its files start a replay and actors, and workload {} has "
        "none; allowed: slurm",
        backend, input.config.learner.workload));
  }
  if (!MakeEnvOf(input.config).empty() && backend != "slurm") {
    throw ConfigError(fmt::format(
        "--render {}: its containers have the built programs, and task {} "
        "needs Python's; allowed: slurm",
        backend, input.config.task.name));
  }
  const auto loaded =
      LoadRunConfig(config::Document::FromFile(
                        "config.yaml", found->second.settings(input.config),
                        [&](const std::filesystem::path& /*path*/) {
                          return input.resolved_yaml;
                        }),
                    input.registry);
  RunConfig config = loaded.config;
  // the host is not known yet, so any numeric address passes
  config.cluster.address = "0.0.0.0";
  // images may be trained by the launcher's nodes alone
  if (config.has_actors() || config.cluster.has_remote_workers() ||
      config.cluster.has_remote_servers()) {
    CheckCluster(config);
  }
  std::error_code error;
  if (std::filesystem::exists(input.folder) &&
      !std::filesystem::is_empty(input.folder, error)) {
    throw IoError(
        fmt::format("--to {}: it is not empty", input.folder.string()));
  }
  MakeFolders(input.folder);
  return found->second.render({.config = config,
                               .resolved_yaml = loaded.resolved_yaml,
                               .commands = input.commands,
                               .registry = input.registry,
                               .folder = input.folder});
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

JobResources LauncherResources(const RunConfig& config) {
  std::vector<std::pair<std::string, int64_t>> processes;
  for (const fleet::RoleRequest& request : RoleRequests(config)) {
    processes.emplace_back(request.id.role, 1);
  }
  return SumOf(config.cluster, processes);
}

int64_t NumHosts(const RunConfig& config, const std::string& role) {
  return std::ranges::count(RemoteRoles(config), role, &fleet::RoleId::role);
}

std::vector<std::string> AddressSettings(const RunConfig& config,
                                         const std::string& server,
                                         const std::string& inference) {
  std::vector<std::string> settings;
  if (config.cluster.servers_on_hosts) {
    std::vector<std::string> addresses;
    for (size_t i = 0; i < config.learner.replication.servers.size(); ++i) {
      const std::string name = FillIn(server, {{"INDEX", std::to_string(i)}});
      addresses.push_back(fmt::format("\"tcp://{}:{}\"", name, kServerPort));
    }
    settings.push_back(fmt::format("learner.replication.servers=[{}]",
                                   fmt::join(addresses, ", ")));
  }
  if (config.cluster.inference_on_host) {
    settings.push_back(
        config::Setting("actors.inference_bind",
                        fmt::format("tcp://{}:{}", inference, kInferencePort)));
  }
  return settings;
}

int64_t ActorsPerHost(const RunConfig& config, int64_t num_hosts) {
  if (num_hosts == 0) return 0;
  const int64_t local =
      std::min(config.cluster.local_actors, config.actors.count);
  return (config.actors.count - local + num_hosts - 1) / num_hosts;
}

}  // namespace replicant::programs
