#include "programs/fleet/scalable_actors.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/config/edit.h"
#include "base/config/yaml_parser.h"
#include "base/fs.h"
#include "base/thread.h"

namespace replicant::programs {

fleet::ScalableRole ScalableActors(const RolePlan& plan,
                                   const std::vector<fleet::PlacedRole>& placed,
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
  actors.make = [&plan, cpus](uint32_t index, int64_t count) {
    fleet::RoleSpec spec =
        MakeRole({.request = {.id = {"actor", index}}, .cpus = cpus}, plan);
    // the files of the run have another number
    spec.arguments = {"--set",
                      config::Setting("actors.count", std::to_string(count))};
    spec.is_remote = spec.is_elastic =
        plan.config.cluster.has_hosts() &&
        index >= static_cast<uint64_t>(plan.config.cluster.local_actors);
    return spec;
  };
  actors.keep =
      [folder, yaml = ReadFile(folder->config_file(),
                               config::YamlLimits::kFileBytes)](int64_t count) {
        folder->ChangeConfig(config::WithValue(yaml, "actors.count", count));
      };
  return actors;
}

}  // namespace replicant::programs
