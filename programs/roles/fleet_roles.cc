#include "programs/roles/fleet_roles.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/config/document.h"
#include "learner/checkpoint_folder.h"

namespace replicant::programs {
namespace {

using fleet::PlacedRole;
using fleet::RoleRequest;
using fleet::RoleSpec;
using OnSuccess = fleet::RoleSpec::OnSuccess;

// Niceness of the roles that share processors with the learner. The threads of
// a step wait for each other, so one interrupted thread holds up all of them.
// The other roles need little time, and find it while the learner waits.
constexpr int kNicenessBesideLearner = 10;

// Adds "--set KEY=VALUE" to a command.
template <typename Value>
void Set(const std::string& key, const Value& value, RoleSpec* spec) {
  spec->command.push_back("--set");
  spec->command.push_back(config::Setting(key, fmt::format("{}", value)));
}

void AddIndex(RoleSpec* spec) {
  spec->command.insert(spec->command.end(),
                       {"--index", std::to_string(spec->id.index)});
}

// Makes the replay restore the moment of the learner's newest checkpoint.
std::vector<std::string> RestoreArguments(
    const std::filesystem::path& run_folder) {
  const auto manifest =
      learner::CheckpointReader(run_folder / "checkpoints").NewestManifest();
  if (!manifest || !manifest->has_input) return {};
  return {"--set", fmt::format("replay.restore_checkpoint={}", manifest->id)};
}

// Makes mpirun start the learner's processes; the first of them speaks for all.
// mpirun would take a SIGTERM and end them at once, so it is blocked there,
// also for one that goes to all processes of a job, and the role drains by the
// order in the answer to its heartbeat alone. mpirun starts its processes with
// no signal blocked, and in process groups of their own. One that stands still
// would outlive an mpirun that is killed, and hold the addresses of the next
// learner, so the kernel kills it.
void RunUnderMpi(const replicator::ReplicationConfig& config, RoleSpec* spec) {
  std::vector<std::string> command = {
      "env", "--block-signal=TERM", "mpirun", "-n",
      std::to_string(config.num_processes()),
      // the processors are chosen already, and may be fewer
      "--oversubscribe", "--bind-to", "none", "--allow-run-as-root", "setpriv",
      "--pdeathsig", "KILL"};
  command.insert(command.end(), spec->command.begin(), spec->command.end());
  spec->command = std::move(command);
  spec->takes_sigterm = false;
}

void MakeReplay(const RolePlan& plan, RoleSpec* spec) {
  const RunConfig& config = plan.config;
  spec->data_flow = fleet::DataFlow::kBuffers;
  spec->start_stage = 0;
  spec->stop_stage = 2;
  Set("replay.observation_bytes", plan.task.observation_bytes(), spec);
  Set("replay.action_bytes", plan.task.action_bytes(), spec);
  Set("replay.frame_bytes", plan.task.frame_bytes(), spec);
  Set("replay.float_rows", true, spec);
  Set("replay.seed", config.run.seed, spec);
  // that of a new run; RestoreArguments() of one that resumes
  Set("replay.restore_checkpoint", 0, spec);
  for (const replay::TableConfig& table :
       config.replay.MakeShardConfig().tables) {
    Set(fmt::format("replay.tables.{}.stack", table.name),
        plan.task.frame_stack, spec);
  }
  Set("replay.checkpoint_folder", (plan.storage_folder / "replay").string(),
      spec);
  // and the part of the one that the learner is about to complete
  Set("replay.num_kept_checkpoints",
      std::max<int64_t>(config.replay.num_kept_checkpoints,
                        config.learner.num_kept_checkpoints + 1),
      spec);
  spec->first_arguments = RestoreArguments(plan.run_folder);
  AddIndex(spec);
}

// Makes the learner's processes start as a group: one that may go on without a
// process that stays lost, or whose hosts must all be there.
void MakeGroup(const RolePlan& plan, RoleSpec* spec) {
  const replicator::ReplicationConfig& replication =
      plan.config.learner.replication;
  if (!replication.strategy->has_processes || replication.uses_mpi()) return;
  if (!replication.is_elastic() && !plan.config.cluster.has_remote_workers()) {
    return;
  }
  spec->min_group_size = replication.is_elastic() ? replication.min_processes
                                                  : replication.num_processes();
  spec->group_arguments = [](int rank, int size) -> std::vector<std::string> {
    return {"--rank", fmt::format("{}/{}", rank, size)};
  };
}

void MakeLearner(const RolePlan& plan, RoleSpec* spec) {
  spec->data_flow = fleet::DataFlow::kConsumes;
  spec->start_stage = 1;
  spec->stop_stage = 1;
  spec->on_success = OnSuccess::kCompletesRun;
  const replicator::ReplicationConfig& replication =
      plan.config.learner.replication;
  if (replication.uses_mpi()) {
    RunUnderMpi(replication, spec);
  }
  MakeGroup(plan, spec);
}

// A parameter server: it has done its part once the learner has ended the
// training.
void MakeServer(const RolePlan& plan, RoleSpec* spec) {
  spec->command.insert(
      spec->command.end(),
      {"--servers_folder", (plan.storage_folder / "servers").string()});
  spec->start_stage = 0;
  spec->stop_stage = 2;
  spec->on_success = OnSuccess::kDone;
}

void MakeWorker(const RolePlan& plan, RoleSpec* spec) {
  // one that makes every step with the learner ends with it
  const bool is_of_step =
      plan.config.learner.replication.strategy->has_processes;
  spec->start_stage = is_of_step ? 1 : 2;
  spec->stop_stage = is_of_step ? 1 : 0;
  spec->on_success = OnSuccess::kDone;
  MakeGroup(plan, spec);
  // the others of a parameter server do without it; the learner leads
  spec->may_be_left_out =
      !is_of_step && plan.config.learner.replication.processes_per_group == 1;
}

// It ends by itself when the policy is good enough.
void MakeEvaluator(const RolePlan& plan, RoleSpec* spec) {
  spec->start_stage = 2;
  spec->stop_stage = 0;
  spec->on_success = OnSuccess::kCompletesRun;
  spec->is_optional = true;
  spec->command.insert(spec->command.end(), {"--began_ms", plan.began_ms});
}

// The actors' server: it starts with them and ends after them.
void MakeInference(const RolePlan& /*plan*/, RoleSpec* spec) {
  spec->start_stage = 2;
  spec->stop_stage = 1;
}

void MakeActor(const RolePlan& /*plan*/, RoleSpec* spec) {
  spec->data_flow = fleet::DataFlow::kProduces;
  spec->work_counter = "episodes";
  spec->start_stage = 2;
  spec->stop_stage = 0;
  AddIndex(spec);
}

// How each role is run.
struct RoleKind {
  std::string_view role;
  std::string_view program;
  // Started as `PROGRAM --role ROLE --index I`.
  bool is_named = false;
  void (*make)(const RolePlan& plan, RoleSpec* spec);
};
constexpr RoleKind kRoles[] = {
    {"replay", "replay", false, &MakeReplay},
    {"learner", "learner", false, &MakeLearner},
    {"server", "learner", true, &MakeServer},
    {"worker", "learner", true, &MakeWorker},
    {"evaluator", "evaluator", false, &MakeEvaluator},
    {"inference", "actor", true, &MakeInference},
    {"actor", "actor", false, &MakeActor},
};

int64_t NumLocalActors(const RunConfig& config) {
  return config.cluster.has_hosts()
             ? std::min(config.cluster.local_actors, config.actors.count)
             : config.actors.count;
}

}  // namespace

std::vector<fleet::RoleId> RemoteRoles(const RunConfig& config) {
  const fleet::ClusterConfig& cluster = config.cluster;
  const replicator::ReplicationConfig& replication = config.learner.replication;
  std::vector<fleet::RoleId> roles;
  const auto add = [&roles](const char* role, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      roles.push_back({role, static_cast<uint32_t>(i)});
    }
  };
  if (cluster.has_remote_workers()) {
    add("worker", 1, replication.num_workers());
  }
  if (cluster.has_remote_servers()) {
    add("server", 0, static_cast<int64_t>(replication.servers.size()));
  }
  if (!config.has_actors()) return roles;
  if (cluster.has_remote_replay()) add("replay", 0, config.replay.shards);
  if (cluster.has_remote_inference()) add("inference", 0, 1);
  add("actor", NumLocalActors(config), config.actors.count);
  return roles;
}

bool WaitsAlone(const RunConfig& config, const fleet::RoleId& id) {
  // the learner of a parameter server goes on without the other workers
  return id.role == "actor" ||
         (id.role == "worker" &&
          config.learner.replication.strategy->has_servers);
}

std::vector<RoleRequest> RoleRequests(const RunConfig& config) {
  const replicator::ReplicationConfig& replication = config.learner.replication;
  const bool has_servers = replication.strategy->has_servers;
  // mpirun starts all replicas as one role
  const bool has_processes =
      replication.strategy->has_processes && !replication.uses_mpi();
  const int num_replicas = has_servers ? replication.replicas_per_group /
                                             replication.processes_per_group
                           : has_processes ? replication.replicas_per_process
                                           : replication.replicas;
  const auto worker = [&](const char* role, uint32_t index) {
    return RoleRequest{.id = {role, index},
                       .threads = replication.threads *
                                  replication.logical_devices * num_replicas,
                       .is_exclusive = config.fleet.exclusive_learner};
  };
  std::vector<RoleRequest> requests = {worker("learner", 0)};
  const int num_workers =
      config.cluster.has_remote_workers() ? 1 : replication.num_workers();
  for (int i = 1; i < num_workers; ++i) {
    requests.push_back(worker("worker", static_cast<uint32_t>(i)));
  }
  if (has_servers && !config.cluster.has_remote_servers()) {
    for (size_t i = 0; i < replication.servers.size(); ++i) {
      requests.push_back(
          {.id = {"server", static_cast<uint32_t>(i)}, .load = 0.3});
    }
  }
  if (!config.has_actors()) return requests;
  if (!config.cluster.has_remote_replay()) {
    for (int64_t i = 0; i < config.replay.shards; ++i) {
      requests.push_back(
          {.id = {"replay", static_cast<uint32_t>(i)}, .load = 0.2});
    }
  }
  if (config.actors.inference == actors::InferencePlace::kHost &&
      !config.cluster.has_remote_inference()) {
    requests.push_back(
        {.id = {"inference", 0},
         .threads = static_cast<int>(config.actors.inference_threads)});
  }
  for (int64_t i = 0; i < NumLocalActors(config); ++i) {
    requests.push_back({.id = {"actor", static_cast<uint32_t>(i)}});
  }
  if (config.evaluation.enabled) {
    requests.push_back({.id = {"evaluator", 0}, .load = 0.3});
  }
  return requests;
}

RoleSpec MakeRole(const PlacedRole& placed, const RolePlan& plan) {
  const std::string& role = placed.request.id.role;
  const auto* const kind = std::ranges::find(kRoles, role, &RoleKind::role);
  RoleSpec spec;
  spec.id = placed.request.id;
  spec.cpus = placed.cpus;
  spec.restart = plan.config.fleet.restart.at(role);
  if (!plan.config.fleet.exclusive_learner && kind->program != "learner") {
    spec.niceness_levels = kNicenessBesideLearner;
  }
  spec.command = plan.commands.Of(kind->program);
  spec.command.insert(spec.command.end(),
                      {"--config", plan.config_file.string()});
  if (kind->is_named) {
    spec.command.insert(spec.command.end(), {"--role", role});
    AddIndex(&spec);
  }
  Set("run.dir", plan.run_folder.string(), &spec);
  Set("run.key_file", plan.key_file.string(), &spec);
  kind->make(plan, &spec);
  spec.command = fleet::FillTemplate(plan.config.cluster.roles.at(role).command,
                                     spec.command);
  return spec;
}

std::vector<fleet::ProgressField> ProgressFields(const RunConfig& config) {
  using Kind = fleet::ProgressField::Kind;
  const learner::LimitsConfig& limits = config.learner.limits;
  const auto max_steps = static_cast<double>(limits.max_steps);
  const auto max_frames = static_cast<double>(limits.max_frames);
  std::vector<fleet::ProgressGoal> goals = {
      {.role = "learner", .number = "updates", .goal = max_steps},
      {.role = "learner", .number = "frames", .goal = max_frames},
      {.role = "learner", .number = "epochs", .goal = limits.max_epochs},
      {.role = "learner", .number = "seconds", .goal = limits.max_seconds}};
  std::erase_if(goals, [](const auto& goal) { return goal.goal <= 0.0; });

  // the most important first: entries that do not fit on the terminal are left
  // out
  std::vector<fleet::ProgressField> fields;
  const auto add = [&](Kind kind, const char* label, const char* role,
                       const char* number, double goal = 0.0) {
    fields.push_back({.kind = kind,
                      .label = label,
                      .role = role,
                      .number = number,
                      .goal = goal});
  };
  if (config.has_actors()) add(Kind::kValue, "return", "actor", "return");
  if (config.evaluation.enabled) {
    add(Kind::kValue, "eval", "evaluator", "evaluation_return");
  }
  add(Kind::kCount, "updates", "learner", "updates", max_steps);
  fields.push_back({.kind = Kind::kTime, .goals = std::move(goals)});
  fields.push_back({.kind = Kind::kLimit});
  add(Kind::kValue, "updates/s", "learner", "updates_per_s");
  if (config.has_actors()) {
    // of the whole run, as learner.limits.max_frames counts them
    add(Kind::kCount, "frames", "learner", "frames", max_frames);
    add(Kind::kRate, "frames/s", "actor", "frames");
    add(Kind::kValue, "samples/insert", "replay", "samples_per_insert");
  }
  if (config.learner.checkpoint_interval_s > 0.0) {
    add(Kind::kDuration, "checkpoint age", "learner", "checkpoint_age_s");
  }
  return fields;
}

std::vector<fleet::CurveField> CurveFields(const RunConfig& config) {
  using Kind = fleet::CurveField::Kind;
  if (!config.has_actors()) return {};
  return {{Kind::kMean, "actors/return", "actor", "return"},
          {Kind::kMean, "actors/episode_length", "actor", "episode_length"},
          {Kind::kSum, "actors/episodes", "actor", "episodes"},
          {Kind::kRate, "actors/frames_per_s", "actor", "frames"},
          {Kind::kRateOfEach, "actors/frames_per_s", "actor", "frames"},
          {Kind::kMean, "actors/noise_scale", "actor", "noise_scale"},
          {Kind::kBehindSteps, "actors/policy_lag", "actor", "policy_step"},
          {Kind::kSum, "replay/items", "replay", "items"},
          {Kind::kSum, "replay/bytes", "replay", "bytes"},
          {Kind::kMean, "replay/samples_per_insert", "replay",
           "samples_per_insert"}};
}

}  // namespace replicant::programs
