#include "programs/run_config.h"

#include "core/config/log_config.h"

namespace replicant::programs {

RunConfig RunConfig::Read(config::Reader& reader) {
  RunConfig c;
  reader.Section("run", &c.run, "the run as a whole");
  reader.Section("task", &c.task, "what the agent acts in");
  reader.Section("agent", &c.agent, "the D4PG agent");
  reader.Section("replay", &c.replay, "where steps are kept");
  reader.Section("actors", &c.actors, "who acts");
  reader.Section("learner", &c.learner, "the training");
  reader.Section("resnet50", &c.resnet50,
                 "the image classifier, with learner.workload resnet50");
  reader.Section("sngan", &c.sngan,
                 "the networks that make images, with learner.workload sngan");
  reader.Section("evaluation", &c.evaluation, "trials without noise");
  reader.Section("fleet", &c.fleet, "how the run's processes are watched");
  c.log = config::ReadLogOptions(reader);
  return c;
}

std::filesystem::path RunFolderOf(const RunConfig& config) {
  if (!config.run.dir.empty()) return config.run.dir;
  return std::filesystem::path("runs") / config.run.name;
}

}  // namespace replicant::programs
