// Runs a whole training on this machine: replay, learner and actors, started,
// watched, started again and stopped together.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "agents/task_spec.h"
#include "core/base/thread.h"
#include "fleet/placement.h"
#include "fleet/run_fleet.h"
#include "learner/checkpoint_folder.h"
#include "training/check_training.h"
#include "training/program.h"

namespace replicant::fleet {
namespace {

using training::TrainingConfig;

// Where the programs of the roles are: beside this one.
std::filesystem::path ProgramFolder() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

std::vector<RoleRequest> Requests(const TrainingConfig& config) {
  std::vector<RoleRequest> requests = {
      {.id = {"learner", 0},
       .threads = config.learner.replication.threads,
       .is_exclusive = config.fleet.exclusive_learner},
      {.id = {"replay", 0}, .load = 0.2}};
  for (int64_t i = 0; i < config.actors.count; ++i) {
    requests.push_back({.id = {"actor", static_cast<uint32_t>(i)}});
  }
  return requests;
}

// Has the replay go back to the moment of the learner's newest checkpoint.
std::vector<std::string> RestoreArguments(const std::filesystem::path& folder) {
  const auto manifest =
      learner::CheckpointFolder(folder / "checkpoints", /*num_kept=*/1)
          .NewestManifest();
  if (!manifest || !manifest->has_input) return {};
  return {"--set", fmt::format("replay.restore_checkpoint={}", manifest->id)};
}

RoleSpec MakeRole(const PlacedRole& placed, const TrainingConfig& config,
                  const agents::TaskSpec& task,
                  const std::filesystem::path& folder) {
  const std::string& role = placed.request.id.role;
  RoleSpec spec;
  spec.id = placed.request.id;
  spec.cpus = placed.cpus;
  spec.restart = config.fleet.restart.at(role);
  spec.command = {(ProgramFolder() / role).string(), "--config",
                  (folder / "config.yaml").string()};
  const auto set = [&spec](const std::string& setting) {
    spec.command.push_back("--set");
    spec.command.push_back(setting);
  };
  set("run.dir=" + folder.string());
  if (role == "replay") {
    spec.start_stage = 0;
    spec.stop_stage = 2;
    set(fmt::format("replay.observation_bytes={}", task.observation_bytes()));
    set(fmt::format("replay.action_bytes={}", task.action_bytes()));
    set(fmt::format("replay.frame_bytes={}", task.frame_bytes()));
    for (const replay::TableConfig& table :
         config.replay.MakeShardConfig().tables) {
      set(fmt::format("replay.tables.{}.stack={}", table.name,
                      task.frame_stack));
    }
    set(fmt::format("replay.checkpoint_folder={}",
                    (folder / "replay").string()));
    // and the part of the one that the learner is about to complete
    set(fmt::format(
        "replay.num_kept_checkpoints={}",
        std::max<int64_t>(config.replay.num_kept_checkpoints,
                          config.learner.num_kept_checkpoints + 1)));
    spec.first_arguments = RestoreArguments(folder);
  } else if (role == "learner") {
    spec.start_stage = 1;
    spec.stop_stage = 1;
    spec.on_success = RoleSpec::OnSuccess::kCompletesRun;
  } else {
    spec.start_stage = 2;
    spec.stop_stage = 0;
    spec.command.push_back("--index");
    spec.command.push_back(fmt::format("{}", placed.request.id.index));
  }
  return spec;
}

int Run(const TrainingConfig& config, const agents::TaskSpec& task,
        RunFolder folder) {
  FleetRun run{.config = config.fleet,
               .seed = static_cast<uint64_t>(config.run.seed),
               .roles = {},
               .progress = {}};
  const CpuTopology topology = ReadCpuTopology();
  const std::vector<PlacedRole> placed = Place(topology, Requests(config));
  std::fputs(PlacementTable(topology, placed).c_str(), stdout);
  std::printf("run folder: %s\n", folder.path().c_str());
  std::fflush(stdout);
  for (const PlacedRole& role : placed) {
    run.roles.push_back(MakeRole(role, config, task, folder.path()));
  }
  using Kind = ProgressField::Kind;
  run.progress = {{.kind = Kind::kValue,
                   .label = "updates",
                   .role = "learner",
                   .number = "updates"},
                  {.kind = Kind::kValue,
                   .label = "updates/s",
                   .role = "learner",
                   .number = "updates_per_s"},
                  {.kind = Kind::kCount,
                   .label = "frames",
                   .role = "actor",
                   .number = "frames"},
                  {.kind = Kind::kRate,
                   .label = "frames/s",
                   .role = "actor",
                   .number = "frames"},
                  {.kind = Kind::kValue,
                   .label = "return",
                   .role = "actor",
                   .number = "return"}};
  const RunResult result = RunFleet(run, folder);
  for (const std::string& problem : result.problems) {
    std::fprintf(stderr, "fleet: %s\n", problem.c_str());
  }
  std::fprintf(result.ok() ? stdout : stderr, "%s\n", result.message.c_str());
  return result.ok() ? 0 : 1;
}

int Main(int argc, char** argv) {
  std::string resumed;
  return training::RunProgram(
      argc, argv,
      {.name = "fleet",
       .about = "Runs a training: replay, learner and actors on this machine.",
       .add_options =
           [&](config::CommandLine& command_line) {
             command_line.AddConfigOption(
                 "--resume", &resumed,
                 "go on with the run of this folder, by the configuration "
                 "that lies in it",
                 RunFolder::ConfigFile);
           }},
      [&](const config::Loaded<TrainingConfig>& loaded) {
        // before there is a folder
        const agents::TaskSpec task = training::CheckTraining(loaded.config);
        training::CheckAddresses(loaded.config);
        return Run(loaded.config, task,
                   resumed.empty() ? RunFolder::Create(loaded.config.run,
                                                       loaded.resolved_yaml)
                                   : RunFolder::Resume(resumed));
      });
}

}  // namespace
}  // namespace replicant::fleet

int main(int argc, char** argv) { return replicant::fleet::Main(argc, argv); }
