#pragma once

#include <any>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "actors/actors_config.h"
#include "base/config/load.h"
#include "base/config/reader.h"
#include "base/log.h"
#include "base/rpc/curve.h"
#include "env/task_config.h"
#include "evaluation/evaluation_config.h"
#include "fleet/cluster_config.h"
#include "fleet/fleet_config.h"
#include "fleet/port_claim.h"
#include "learner/data/images_config.h"
#include "learner/learner_config.h"
#include "programs/run/registry.h"
#include "replay/service/replay_config.h"

namespace replicant::programs {

// Returns the table that the learner samples: the only one of the replay, or
// the default one of a replay that names none. Throws ConfigError if there are
// several.
replay::TableConfig SampledTable(const replay::ReplayConfig& replay);

// The configuration of a whole run. Every program of the run reads all of it,
// so that the first program reports every mistake.
struct RunConfig {
  fleet::RunSection run;
  env::TaskConfig task;
  replay::ReplayConfig replay;
  actors::ActorsConfig actors;
  learner::LearnerConfig learner;
  data::ImagesConfig images;
  evaluation::EvaluationConfig evaluation;
  fleet::FleetConfig fleet;
  fleet::ClusterConfig cluster;
  LogOptions log;
  // The section of each registered workload, by the workload's name.
  std::map<std::string, std::any> workloads;
  // The workload that learner.workload names; may outlive the registry.
  std::shared_ptr<const learner::WorkloadDef> workload;

  // Reads the sections above and one for each workload of `registry`. An
  // unknown learner.workload is reported to the reader.
  static RunConfig Read(config::Reader& reader, const Registry& registry);

  // Whether the run has actors, a replay and a policy to evaluate.
  bool has_actors() const { return workload->has_actors(); }
  // The agent that its actors run. Precondition: has_actors().
  std::shared_ptr<const agents::Agent> MakeAgent() const {
    return workload->make_agent(section());
  }
  // The images of the run, from the sources of `registry`, which outlives them.
  data::ImageInput ImagesOf(const Registry& registry) const;
  // The section of learner.workload.
  const std::any& section() const { return workloads.at(workload->name); }
  // SampledTable() of this run's replay.
  replay::TableConfig sampled_table() const { return SampledTable(replay); }
  // The learning problem: the sampled table gives discount, n and window.
  // Throws ConfigError for windows that the agent does not read.
  agents::LearningSpec SpecOf(const agents::TaskSpec& task_spec) const;
};

// Makes relative paths of models and data absolute, as config::MakeAbsolute()
// does. LoadRunConfig() does this first.
void MakePathsAbsolute(config::Document& document, const Registry& registry);
// Throws ConfigError that lists every problem.
config::Loaded<RunConfig> LoadRunConfig(config::Document document,
                                        const Registry& registry);
// The manual of a run's configuration.
config::Manual DescribeRunConfig(const Registry& registry);

// The address of a part of a run that listens.
struct PartAddress {
  // "replay", of several shards "replay-0"; "parameters", "inference",
  // "server-0"
  std::string part;
  std::string key;  // of the configuration
  std::string* endpoint;
  // of another host, which joins for this part
  bool is_elsewhere = false;
  // Whether the process there may choose the address itself.
  bool may_be_told = false;

  // Whether it does: programs/run/role_endpoint.h.
  bool is_told() const { return may_be_told && *endpoint == "auto"; }
};
// The addresses in `config`, of a run with actors or with parameter servers.
std::vector<PartAddress> AddressesOf(RunConfig* config);

// Fills in the addresses of a run. "auto" becomes a socket of this host, named
// after the run's folder. The port of "tcp://ADDRESS:*" comes from the
// folder's addresses.yaml, if a fleet has announced it. The programs of a run
// thus find each other, and two runs never share an address. Passes the run's
// key file to the sections that need it. Throws ConfigError for a broken
// addresses.yaml.
void ResolveAddresses(const std::filesystem::path& run_folder,
                      RunConfig* config);
// Fills in where the learner's processes meet: what the fleet announced, what
// the launcher of this process says, or a file of the run. Throws ConfigError
// for a launcher that has started another number of processes.
void ResolveRendezvous(const std::filesystem::path& run_folder,
                       replicator::ReplicationConfig* replication);
// The addresses that a fleet has chosen for its run.
struct AnnouncedAddresses {
  std::vector<fleet::PortClaim> ports;  // the run's own as long as they live
  std::string join_endpoint;            // where hosts join; empty: nowhere
};
// Chooses a free port for every "tcp://ADDRESS:*" and announces the addresses
// in the folder. With other hosts, "auto" becomes a port of the cluster's
// address. Throws ConfigError, which names the key, and IoError.
AnnouncedAddresses AnnounceAddresses(const std::filesystem::path& run_folder,
                                     RunConfig* config);
// The address that the folder's fleet has announced for a part of the run
// ("replay"; kJoinPart: where hosts join); empty: none. Throws ConfigError for
// a broken file.
inline constexpr const char* kJoinPart = "fleet";
// Where the learner's processes meet if some of them run on other hosts, and
// the file of the run's folder with their secret.
inline constexpr const char* kRendezvousPart = "rendezvous";
inline constexpr const char* kRendezvousKeyName = "rendezvous.key";
std::string AnnouncedAddress(const std::filesystem::path& run_folder,
                             const std::string& part);

// File with the key pair that the run's processes share; empty: none.
std::filesystem::path KeyFileOf(const RunConfig& config);
// The same of the run in this folder, by its config.yaml. Throws what
// config::Document::FromFile() throws.
std::filesystem::path KeyFileOfRun(const std::filesystem::path& run_folder);
// What a client of the replay of the run in this folder needs: the sections
// run, replay and cluster of its config.yaml, with addresses resolved. The
// other sections are defaults, so that a program can reach the replay of a run
// whose task or workload it does not know. Throws what
// config::Document::FromFile() and ResolveAddresses() throw.
RunConfig ReplayOfRun(const std::filesystem::path& run_folder);
// CURVE settings of the run's clients for its replay: the run's key pair, and
// the replay's public key if it has its own key. Throws IoError if a key file
// cannot be read, and ConfigError if only the replay has keys.
rpc::CurveRole ReplayClientRole(const RunConfig& config);

// The value of REPLICANT_MAKE_ENV, which names the function that makes the
// environments of a run of the task python-environment; "" for other runs.
std::string MakeEnvOf(const RunConfig& config);

// The output folder of the run's programs: run.dir, or runs/NAME.
std::filesystem::path RunFolderOf(const RunConfig& config);

}  // namespace replicant::programs
