#include "programs/fleet/scalable_actors.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/config/document.h"
#include "base/fs.h"
#include "base/thread.h"
#include "fleet/protocol/agent_messages.h"
#include "programs/run/run_config.h"

namespace replicant::programs {

fleet::ScalableRole ScalableActors(const RolePlan& plan,
                                   const std::vector<fleet::PlacedRole>& placed,
                                   const Registry& registry,
                                   fleet::RunFolder* folder) {
  const RunConfig& config = plan.config;
  fleet::ScalableRole actors{.count = config.actors.count,
                             .max_count = actors::kMaxActors};
  if (config.actors.inference == actors::InferencePlace::kHost) {
    actors.max_count = config.actors.count;
    actors.why_no_more =
        "the inference server was made for actors.count of them";
  }
  // another one shares the processors of the first ones
  std::vector<int> numbers;
  for (const fleet::PlacedRole& role : placed) {
    if (role.request.id.role != "actor") continue;
    numbers.insert(numbers.end(), role.cpus.cpus().begin(),
                   role.cpus.cpus().end());
  }
  const CpuSet cpus(std::move(numbers));
  const auto setting = [](int64_t count) {
    return config::Setting("actors.count", std::to_string(count));
  };
  actors.make = [&plan, cpus, setting](uint32_t index, int64_t count) {
    fleet::RoleSpec spec =
        MakeRole({.request = {.id = {"actor", index}}, .cpus = cpus}, plan);
    // the files of the run have another number
    spec.arguments = {"--set", setting(count)};
    spec.is_remote = spec.is_elastic =
        plan.config.cluster.has_hosts() &&
        index >= static_cast<uint64_t>(plan.config.cluster.local_actors);
    return spec;
  };
  actors.keep = [setting, &registry, folder,
                 yaml = ReadFile(folder->config_file(),
                                 fleet::kMaxAgentFileBytes)](int64_t count) {
    folder->ChangeConfig(
        LoadRunConfig(config::Document::FromFile(
                          "config.yaml", {setting(count)},
                          [&yaml](const std::filesystem::path& /*path*/) {
                            return yaml;
                          }),
                      registry)
            .resolved_yaml);
  };
  return actors;
}

}  // namespace replicant::programs
