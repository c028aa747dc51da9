#include "programs/run_config.h"

#include <fmt/format.h>

#include <vector>

#include "core/base/crc32c.h"
#include "core/config/edit.h"
#include "core/config/log_config.h"

namespace replicant::programs {
namespace {

// images.source of images that a step makes.
constexpr const char* kSynthetic = "synthetic";

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

// Linux's abstract namespace: no file is left behind, a path of any length has
// a name, and a second process cannot take the address over.
std::string Resolve(const std::filesystem::path& run_folder,
                    const std::string& address, const std::string& part) {
  if (address != "auto") return address;
  const std::string path = std::filesystem::weakly_canonical(run_folder);
  return fmt::format("ipc://@replicant-{:08x}-{}", Crc32c(path), part);
}

}  // namespace

RunConfig RunConfig::Read(config::Reader& reader, const Registry& registry) {
  RunConfig c;
  reader.Section("run", &c.run, "name, folder and seed of the run");
  reader.Section("task", &c.task, "the environment that the agent learns in");
  ReadWorkloads(reader, registry, /*have_actors=*/true, &c);
  reader.Section("replay", &c.replay, "the replay service");
  reader.Section("actors", &c.actors, "the actors");
  config::Reader learner = reader.Section(
      "learner", "the learner: limits, checkpoints, replication");
  c.learner = learner::LearnerConfig::Read(learner, registry.strategies);
  reader.Section("images", &c.images,
                 "the images that resnet50 and sngan learn from");
  ReadWorkloads(reader, registry, /*have_actors=*/false, &c);
  reader.Section("evaluation", &c.evaluation,
                 "evaluations without exploration noise");
  reader.Section("fleet", &c.fleet,
                 "how the launcher watches the processes of a run");
  c.log = config::ReadLogOptions(reader);
  c.workload = registry.workloads.Find(c.learner.workload);
  if (c.workload == nullptr) {
    reader.Error("learner.workload",
                 fmt::format("'{}' is none of {}", c.learner.workload,
                             registry.workloads.Names()));
  }
  if (c.images.source != kSynthetic &&
      !registry.images.contains(c.images.source)) {
    std::string names = kSynthetic;
    for (const auto& [name, make] : registry.images) names += ", " + name;
    reader.Error("images.source",
                 fmt::format("'{}' is none of {}", c.images.source, names));
  }
  return c;
}

data::ImageInput RunConfig::ImagesOf(const Registry& registry) const {
  data::ImageInput input{.config = images};
  if (images.source == kSynthetic) return input;
  const data::MakeImageSource& make = registry.images.at(images.source);
  const auto seed = static_cast<uint64_t>(run.seed);
  input.open = [&make, config = images, seed](data::Split split) {
    return make(config, split, seed);
  };
  return input;
}

replay::TableConfig RunConfig::sampled_table() const {
  return replay.MakeShardConfig().tables[0];
}

agents::LearningSpec RunConfig::SpecOf(
    const agents::TaskSpec& task_spec) const {
  const replay::NStepConfig items = sampled_table().n_step;
  return {.task = task_spec,
          .discount = items.discount,
          .n_step = items.n_step,
          .window = items.window};
}

config::Loaded<RunConfig> LoadRunConfig(config::Document document,
                                        const Registry& registry) {
  for (const char* const key : {"task.mjcf", "task.suite_folder",
                                "images.train", "images.evaluation"}) {
    config::MakeAbsolute(document, key);
  }
  for (const auto& workload : registry.workloads.workloads()) {
    for (const std::string& key : workload->path_keys) {
      config::MakeAbsolute(document, workload->section + "." + key);
    }
  }
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

void ResolveAddresses(const std::filesystem::path& run_folder,
                      RunConfig* config) {
  config->replay.bind = ReplayAddress(run_folder, config->replay.bind);
  config->learner.parameter_bind =
      Resolve(run_folder, config->learner.parameter_bind, "parameters");
  std::string& rendezvous = config->learner.replication.rendezvous;
  if (rendezvous == replicator::ReplicationConfig::kAuto) {
    rendezvous = std::filesystem::absolute(run_folder / "rendezvous");
  }
  std::vector<std::string>& servers = config->learner.replication.servers;
  for (size_t i = 0; i < servers.size(); ++i) {
    servers[i] = Resolve(run_folder, servers[i], fmt::format("server-{}", i));
  }
}

std::string ReplayAddress(const std::filesystem::path& run_folder,
                          const std::string& bind) {
  return Resolve(run_folder, bind, "replay");
}

std::filesystem::path RunFolderOf(const RunConfig& config) {
  if (!config.run.dir.empty()) return config.run.dir;
  return std::filesystem::path("runs") / config.run.name;
}

}  // namespace replicant::programs
