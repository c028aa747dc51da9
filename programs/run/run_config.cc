#include "programs/run/run_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <vector>

#include "base/config/edit.h"
#include "base/config/log_config.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/rpc/group_key.h"
#include "fleet/run_folder.h"
#include "programs/run/launcher_place.h"

namespace replicant::programs {
namespace {

// images.source of images that a step makes.
constexpr const char* kSynthetic = "synthetic";
// Pictures of the Control Suite (Registry::BuiltIn()).
constexpr const char* kRendered = "rendered";
// The file of a run's folder by which its processes find each other.
constexpr const char* kAddressesName = "addresses.yaml";

// The sections of agents stand before the replay's, sections of other workloads
// after the learner's.
void ReadWorkloads(config::Reader& reader, const Registry& registry,
                   bool have_actors, RunConfig* c) {
  for (const auto& workload : registry.workloads.workloads()) {
    if (workload->has_actors() != have_actors) continue;
    config::Reader section =
        reader.Section(workload->section, workload->section_doc);
    c->workloads[workload->name] = workload->read_section(section);
  }
}

// Reports that `count` hosts have an address of a part that has `wanted`.
void ReportCount(config::Reader& reader, size_t count, const char* address,
                 const char* key, int64_t wanted) {
  reader.Error("cluster.hosts",
               fmt::format("{} of them have a {}, and {} is {}; want one for "
                           "each, or none",
                           count, address, key, wanted));
}

// Gives the parts that listen on hosts of the cluster their addresses.
void UseAddressesOfHosts(config::Reader& reader, RunConfig* c) {
  using fleet::HostConfig;
  const std::vector<std::string> shards =
      c->cluster.AddressesOf(&HostConfig::shard_address);
  if (!shards.empty()) {
    if (static_cast<int64_t>(shards.size()) != c->replay.shards) {
      ReportCount(reader, shards.size(), "shard_address", "replay.shards",
                  c->replay.shards);
    } else {
      c->replay.bind = shards[0];
      if (shards.size() > 1) c->replay.shard_binds = shards;
    }
  }
  const std::vector<std::string> servers =
      c->cluster.AddressesOf(&HostConfig::server_address);
  std::vector<std::string>& addresses = c->learner.replication.servers;
  if (!servers.empty()) {
    if (servers.size() != addresses.size()) {
      ReportCount(reader, servers.size(), "server_address",
                  "the number of learner.replication.servers",
                  static_cast<int64_t>(addresses.size()));
    } else {
      addresses = servers;
    }
  }
  const std::vector<std::string> inference =
      c->cluster.AddressesOf(&HostConfig::inference_address);
  if (inference.size() > 1) {
    ReportCount(reader, inference.size(), "inference_address",
                "the number of inference servers", 1);
  } else if (!inference.empty()) {
    c->actors.inference_bind = inference[0];
  }
}

// The reward of another goal is known for single control steps, from what the
// environment itself gave.
void CheckHindsight(config::Reader& reader, const RunConfig& c) {
  if (c.actors.hindsight.goals == 0) return;
  if (c.task.action_repeat > 1) {
    reader.Error("actors.hindsight.goals",
                 fmt::format("{} with task.action_repeat {}, but rewards of "
                             "other goals are of single steps; allowed: 0, or "
                             "action_repeat 1",
                             c.actors.hindsight.goals, c.task.action_repeat));
  }
  if (c.task.has_pixels && !c.task.has_state_beside_pixels) {
    reader.Error("actors.hindsight.goals",
                 fmt::format("{} with task.pixels.state false, so that the "
                             "agent does not see its goal; allowed: 0, or "
                             "task.pixels.state true",
                             c.actors.hindsight.goals));
  }
  if (c.task.disturbances.IsAny()) {
    reader.Error("actors.hindsight.goals",
                 fmt::format("{} with task.disturbances, which hide the goals "
                             "that were achieved; allowed: 0, or no "
                             "disturbances",
                             c.actors.hindsight.goals));
  }
}

// The task is known here, and no environment that the user names is left out.
void CheckTask(config::Reader& reader, const RunConfig& c,
               const env::TaskRegistry& tasks) {
  const std::string problem = tasks.ProblemOf(c.task.name);
  if (!problem.empty()) {
    reader.Error("task.name", problem);
  } else if (c.task.name != env::kPythonTask &&
             tasks.ProblemOf(env::kPythonTask).empty()) {
    reader.Error(
        "task.name",
        fmt::format("'{0}', so that the environment of {1} is not "
                    "used; allowed: {2}, or none in {1}",
                    c.task.name, env::kMakeEnvVariable, env::kPythonTask));
  }
}

// Would train on other images than those that are named.
void CheckImages(config::Reader& reader, const RunConfig& c) {
  if (c.images.source != kSynthetic && c.images.source != kRendered) return;
  for (const auto& [key, path] :
       {std::pair("images.train", c.images.train),
        std::pair("images.evaluation", c.images.evaluation)}) {
    if (path.empty()) continue;
    reader.Error(key, fmt::format("'{}', but images.source {} reads no files; "
                                  "hint: images.source: image_folder",
                                  path, c.images.source));
  }
}

// Linux's abstract namespace: no file is left behind, a path of any length has
// a name, and a second process cannot take the address over.
std::string Resolve(const std::filesystem::path& run_folder,
                    const std::string& address, const std::string& part) {
  if (address != "auto") return address;
  // a relative path that does not exist yet would stay relative
  const std::string path =
      std::filesystem::weakly_canonical(std::filesystem::absolute(run_folder));
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
  reader.Section("cluster", &c.cluster, "the hosts of a run");
  UseAddressesOfHosts(reader, &c);
  c.log = config::ReadLogOptions(reader);
  c.workload = registry.workloads.Find(c.learner.workload);
  if (c.workload == nullptr) {
    reader.Error("learner.workload",
                 fmt::format("'{}' is not allowed; allowed: {}",
                             c.learner.workload, registry.workloads.Names()));
  }
  if (c.learner.offline_updates > 0 && c.replay.prior_folder.empty()) {
    reader.Error("learner.offline_updates",
                 fmt::format("{} steps on prior data, but there is no "
                             "replay.prior.folder",
                             c.learner.offline_updates));
  }
  if (c.workload != nullptr && !c.has_actors() &&
      c.learner.limits.max_frames > 0) {
    reader.Error("learner.limits.max_frames",
                 fmt::format("workload {} has no frames; allowed here: 0",
                             c.learner.workload));
  }
  if (c.workload != nullptr && c.has_actors()) {
    CheckTask(reader, c, registry.tasks);
  }
  CheckHindsight(reader, c);
  // of all writers' steps, and they write copies, too
  c.learner.importance.steps *= 1 + c.actors.hindsight.goals;
  if (c.images.source != kSynthetic &&
      !registry.images.contains(c.images.source)) {
    std::string names = kSynthetic;
    for (const auto& [name, make] : registry.images) names += ", " + name;
    reader.Error("images.source",
                 fmt::format("'{}' is not allowed; allowed: {}",
                             c.images.source, names));
  }
  CheckImages(reader, c);
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

replay::TableConfig SampledTable(const replay::ReplayConfig& replay) {
  const std::vector<replay::TableConfig> tables =
      replay.MakeShardConfig().tables;
  if (tables.size() == 1) return tables.front();
  std::vector<std::string> names;
  names.reserve(tables.size());
  for (const replay::TableConfig& table : tables) names.push_back(table.name);
  throw ConfigError(fmt::format(
      "replay.tables: {}: the learner samples one table, and a table without "
      "samples would stop the actors; allowed in a run: one table",
      fmt::join(names, ", ")));
}

agents::LearningSpec RunConfig::SpecOf(
    const agents::TaskSpec& task_spec) const {
  const replay::TableConfig table = sampled_table();
  const replay::NStepConfig& items = table.n_step;
  int64_t window_observations = 0;
  if (items.window > 0) {
    window_observations = MakeAgent()->NumWindowObservations(items.window);
    if (window_observations == 0) {
      throw ConfigError(fmt::format(
          "replay.tables.{}.window: {}, but agent {} reads no windows; want 0",
          table.name, items.window, workload->name));
    }
  }
  return {.task = task_spec,
          .discount = items.discount,
          .n_step = items.n_step,
          .window = items.window,
          .window_observations = window_observations,
          .writes_per_step = 1 + actors.hindsight.goals,
          .has_prior = !replay.prior_folder.empty()};
}

void MakePathsAbsolute(config::Document& document, const Registry& registry) {
  env::TaskConfig::MakePathsAbsolute(document);
  for (const char* const key :
       {"replay.prior.folder", "images.train", "images.evaluation"}) {
    config::MakeAbsolute(document, key);
  }
  for (const auto& workload : registry.workloads.workloads()) {
    for (const std::string& key : workload->path_keys) {
      config::MakeAbsolute(document, workload->section + "." + key);
    }
  }
}

config::Loaded<RunConfig> LoadRunConfig(config::Document document,
                                        const Registry& registry) {
  MakePathsAbsolute(document, registry);
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

std::vector<PartAddress> AddressesOf(RunConfig* config) {
  std::vector<PartAddress> addresses;
  replay::ReplayConfig& replay = config->replay;
  const bool is_replay_elsewhere = config->cluster.has_remote_replay();
  if (replay.shards == 1) {
    addresses.push_back(
        {"replay", "replay.bind", &replay.bind, is_replay_elsewhere});
  } else {
    replay.shard_binds = replay.Endpoints();
  }
  for (size_t i = 0; i < replay.shard_binds.size(); ++i) {
    addresses.push_back({fmt::format("replay-{}", i), "replay.bind",
                         &replay.shard_binds[i], is_replay_elsewhere});
  }
  addresses.push_back({"parameters", "learner.parameter_bind",
                       &config->learner.parameter_bind});
  if (config->actors.inference == actors::InferencePlace::kHost) {
    addresses.push_back({"inference", "actors.inference_bind",
                         &config->actors.inference_bind,
                         config->cluster.has_remote_inference(),
                         config->cluster.has_remote_inference()});
  }
  const replicator::ReplicationConfig& replication =
      config->learner.replication;
  if (!replication.strategy->has_servers) return addresses;
  std::vector<std::string>& servers = config->learner.replication.servers;
  for (size_t i = 0; i < servers.size(); ++i) {
    addresses.push_back({fmt::format("server-{}", i),
                         "learner.replication.servers", &servers[i],
                         config->cluster.has_remote_servers(),
                         config->cluster.has_remote_servers()});
  }
  return addresses;
}

void ResolveAddresses(const std::filesystem::path& run_folder,
                      RunConfig* config) {
  for (const PartAddress& address : AddressesOf(config)) {
    std::string& endpoint = *address.endpoint;
    if (address.is_told()) continue;
    const bool is_chosen = endpoint == "auto" || fleet::IsOfAnyPort(endpoint);
    const std::string announced =
        is_chosen ? AnnouncedAddress(run_folder, address.part) : "";
    endpoint = announced.empty() ? Resolve(run_folder, endpoint, address.part)
                                 : announced;
  }
  config->learner.key_file = config->learner.replication.key_file =
      KeyFileOf(*config);
}

void ResolveRendezvous(const std::filesystem::path& run_folder,
                       replicator::ReplicationConfig* replication) {
  if (replication->rendezvous != replicator::ReplicationConfig::kAuto ||
      replication->num_workers() == 1) {
    return;
  }
  const auto place = PlaceOfLearner(*replication);
  // groups of parameter_server meet by files
  const bool meets_at_address = replication->strategy->has_processes;
  const std::string announced = AnnouncedAddress(run_folder, kRendezvousPart);
  replication->rendezvous =
      !announced.empty() ? announced
      : place && meets_at_address && !place->rendezvous.empty()
          ? place->rendezvous
          : std::filesystem::absolute(run_folder / "rendezvous").string();
}

std::string AnnouncedAddress(const std::filesystem::path& run_folder,
                             const std::string& part) {
  const std::filesystem::path file = run_folder / kAddressesName;
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return "";
  const auto document = config::Document::FromFile(file);
  const config::Node::Entry* const entry = document.root().Find(part);
  return entry == nullptr ? "" : entry->value.text;
}

AnnouncedAddresses AnnounceAddresses(const std::filesystem::path& run_folder,
                                     RunConfig* config) {
  AnnouncedAddresses announced;
  std::string rendezvous;
  const replicator::ReplicationConfig& replication =
      config->learner.replication;
  std::vector<PartAddress> addresses = AddressesOf(config);
  if (config->cluster.has_hosts()) {
    const std::string host = fleet::ResolveClusterAddress(
        config->cluster.address, config->cluster.hosts);
    for (const PartAddress& address : addresses) {
      if (*address.endpoint == "auto" && !address.is_told()) {
        *address.endpoint = fmt::format("tcp://{}:*", host);
      }
    }
    const int64_t port = config->cluster.port;
    announced.join_endpoint = fmt::format(
        "tcp://{}:{}", host, port == 0 ? "*" : std::to_string(port));
    addresses.push_back(
        {kJoinPart, "cluster.address", &announced.join_endpoint});
    if (config->cluster.has_remote_workers() &&
        replication.strategy->has_processes &&
        replication.rendezvous == replicator::ReplicationConfig::kAuto) {
      rendezvous = fmt::format("tcp://{}:*", host);
      addresses.push_back(
          {kRendezvousPart, "learner.replication.rendezvous", &rendezvous});
      // the meeting is not encrypted, so its secret is no key of the run
      AtomicWriteFile(run_folder / kRendezvousKeyName,
                      rpc::GenerateCurveKeyPair().secret_key, 0600);
    }
  }
  std::string yaml;
  for (const PartAddress& address : addresses) {
    std::string& endpoint = *address.endpoint;
    if (fleet::IsOfAnyPort(endpoint)) {
      try {
        announced.ports.emplace_back(endpoint);
      } catch (const ConfigError& error) {
        throw ConfigError(fmt::format("{}: {}", address.key, error.what()));
      }
      endpoint = announced.ports.back().endpoint();
    } else if (address.part != kJoinPart) {
      continue;
    }
    yaml += fmt::format("{}: {}\n", address.part, endpoint);
  }
  AtomicWriteFile(run_folder / kAddressesName, yaml);
  return announced;
}

std::filesystem::path KeyFileOf(const RunConfig& config) {
  if (config.run.key_file != "auto") return config.run.key_file;
  return fleet::RunFolder::KeyFile(RunFolderOf(config));
}

std::filesystem::path KeyFileOfRun(const std::filesystem::path& run_folder) {
  const auto given = config::ValueOf(
      config::Document::FromFile(fleet::RunFolder::ConfigFile(run_folder)),
      "run.key_file");
  if (given && *given != "auto") return *given;
  return fleet::RunFolder::KeyFile(run_folder);
}

RunConfig ReplayOfRun(const std::filesystem::path& run_folder) {
  // not finished: the other sections stay unread
  config::Reader reader(
      config::Document::FromFile(fleet::RunFolder::ConfigFile(run_folder)));
  RunConfig c;
  reader.Section("run", &c.run, "the run");
  reader.Section("replay", &c.replay, "its replay");
  reader.Section("cluster", &c.cluster, "its hosts");
  UseAddressesOfHosts(reader, &c);
  c.run.dir = run_folder;
  ResolveAddresses(run_folder, &c);
  return c;
}

rpc::CurveRole ReplayClientRole(const RunConfig& config) {
  const auto key = rpc::GroupKey::FromFile(KeyFileOf(config));
  if (config.replay.key_file.empty()) return key.client_role();
  if (!key.is_set()) {
    throw ConfigError(fmt::format(
        "replay.key_file: {}: the clients of the run have no separate key; "
        "hint: give run.key_file, or start the run by a fleet, which makes one",
        config.replay.key_file));
  }
  return key.client_role(rpc::ReadKeyPair(config.replay.key_file).public_key);
}

std::string MakeEnvOf(const RunConfig& config) {
  if (!config.has_actors() || config.task.name != env::kPythonTask) return "";
  // nothing sets it after the program's start
  const char* const name =
      std::getenv(env::kMakeEnvVariable);  // NOLINT(concurrency-mt-unsafe)
  return name == nullptr ? "" : name;
}

std::filesystem::path RunFolderOf(const RunConfig& config) {
  if (!config.run.dir.empty()) return config.run.dir;
  return std::filesystem::path("runs") / config.run.name;
}

}  // namespace replicant::programs
