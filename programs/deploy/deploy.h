#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "programs/run/commands.h"
#include "programs/run/run_config.h"

// Files with which a batch system runs a configuration: `fleet --render BACKEND
// --to FOLDER`.
namespace replicant::programs {

struct RenderInput {
  const RunConfig& config;
  std::string resolved_yaml;
  const Commands& commands;
  const Registry& registry;
  std::filesystem::path folder;  // absolute
};

// Writes config.yaml and the files of `backend`, "slurm", "kubernetes" or
// "skypilot", into `folder`, which is new or empty, and returns instructions
// for their use, as lines for a terminal. Throws ConfigError for another
// backend or for a configuration that does not fit the backend, and IoError.
std::string Render(const std::string& backend, const RenderInput& input);

// The parts of Render(), which makes the folder: settings that the backend
// needs, "KEY=VALUE", and the files of a configuration with these.
std::vector<std::string> KubernetesSettings(const RunConfig& config);
std::vector<std::string> SkypilotSettings(const RunConfig& config);
std::string RenderSlurm(const RenderInput& input);
std::string RenderKubernetes(const RenderInput& input);
std::string RenderSkypilot(const RenderInput& input);

// Replaces each @NAME@ of a template by its value, in which nothing is
// replaced; a name without a value is a bug.
struct TemplateValue {
  std::string name;
  std::string value;
};
std::string FillIn(std::string_view text,
                   const std::vector<TemplateValue>& values);

// What one job or container asks for.
struct JobResources {
  int64_t cores = 0;
  int64_t gpus = 0;
  int64_t memory_mb = 0;  // 0: not asked for
};
// The sum over processes of these roles, {role, number of processes}. A role
// without memory_mb adds none.
JobResources SumOf(
    const fleet::ClusterConfig& cluster,
    const std::vector<std::pair<std::string, int64_t>>& processes);

// The sum over the processes on the launcher's host.
JobResources LauncherResources(const RunConfig& config);

// Number of hosts that join for a process of the role each: "worker", "server",
// "inference".
int64_t NumHosts(const RunConfig& config, const std::string& role);

// Settings that give the parameter servers and the inference server on other
// hosts the names of these hosts; @INDEX@ in `server` is the server's number.
std::vector<std::string> AddressSettings(const RunConfig& config,
                                         const std::string& server,
                                         const std::string& inference);

// Actors per host on `num_hosts` hosts, rounded up.
int64_t ActorsPerHost(const RunConfig& config, int64_t num_hosts);

}  // namespace replicant::programs
