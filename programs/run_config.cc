#include "programs/run_config.h"

#include <fmt/format.h>

#include "core/config/log_config.h"

namespace replicant::programs {
namespace {

// The sections of agents stand before the replay's, those of other workloads
// behind the learner's.
void ReadWorkloads(config::Reader& reader, const Registry& registry,
                   bool have_actors, RunConfig* c) {
  for (const auto& workload : registry.workloads.workloads()) {
    if (workload->has_actors() != have_actors) continue;
    config::Reader section =
        reader.Section(workload->section, workload->section_doc);
    c->workloads[workload->name] = workload->read_section(section);
  }
}

}  // namespace

RunConfig RunConfig::Read(config::Reader& reader, const Registry& registry) {
  RunConfig c;
  reader.Section("run", &c.run, "the run as a whole");
  reader.Section("task", &c.task, "what the agent acts in");
  ReadWorkloads(reader, registry, /*have_actors=*/true, &c);
  reader.Section("replay", &c.replay, "where steps are kept");
  reader.Section("actors", &c.actors, "who acts");
  reader.Section("learner", &c.learner, "the training");
  ReadWorkloads(reader, registry, /*have_actors=*/false, &c);
  reader.Section("evaluation", &c.evaluation, "trials without noise");
  reader.Section("fleet", &c.fleet, "how the run's processes are watched");
  c.log = config::ReadLogOptions(reader);
  for (const auto& workload : registry.workloads.workloads()) {
    if (workload->name == c.learner.workload) c.workload = workload;
  }
  if (c.workload == nullptr) {
    reader.Error("learner.workload",
                 fmt::format("'{}' is none of {}", c.learner.workload,
                             registry.workloads.Names()));
  }
  return c;
}

double RunConfig::discount() const {
  return replay.MakeShardConfig().tables[0].n_step.discount;
}

config::Loaded<RunConfig> LoadRunConfig(config::Document document,
                                        const Registry& registry) {
  return config::LoadBy<RunConfig>(std::move(document),
                                   [&registry](config::Reader& reader) {
                                     return RunConfig::Read(reader, registry);
                                   });
}

config::Manual DescribeRunConfig(const Registry& registry) {
  return config::DescribeBy([&registry](config::Reader& reader) {
    return RunConfig::Read(reader, registry);
  });
}

std::filesystem::path RunFolderOf(const RunConfig& config) {
  if (!config.run.dir.empty()) return config.run.dir;
  return std::filesystem::path("runs") / config.run.name;
}

}  // namespace replicant::programs
