#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/fs.h"
#include "programs/deploy/deploy.h"
#include "programs/run/shell_word.h"

// One job for launcher, learner, replay and evaluator, and an array of jobs
// that bring actors. Array tasks join by the run's folder, which all nodes see,
// and may come, go and be requeued one by one.
namespace replicant::programs {
namespace {

// Before the time limit Slurm sends SIGTERM to the shell alone (B:), and with
// preempt_send_user_signal also when the time of grace of a
// preemption begins. When that is over, or without it, Slurm sends SIGTERM to
// all processes of the job, and SIGKILL after KillWait. The program takes two
// SIGTERM for one.
constexpr const char* kForwardSignals = R"(
stopped=
trap 'stopped=1; kill -TERM "$child" 2>/dev/null' TERM
# a trap interrupts wait, and the program drains
await_child() {
  while true; do
    wait "$child" && code=0 || code=$?
    kill -0 "$child" 2>/dev/null || break
  done
}
)";

constexpr const char* kRunScript = R"(#!/bin/bash
# The launcher, learner, replay and evaluator of a run. Submitted by ./submit,
# which sets RUN, the folder of the run, and SEED.
#SBATCH --job-name=@NAME@
#SBATCH --nodes=@NODES@
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=@CORES@
#SBATCH --time=@TIME@
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:TERM@@WARNING@
@OPTIONS@set -u
fleet=@FLEET@
@FORWARD@
if grep -q '^status: complete' "$RUN/state.yaml" 2>/dev/null; then exit 0; fi
if [[ -f $RUN/state.yaml ]]; then
  "$fleet"@PROGRAM@ --resume "$RUN" &
else
  "$fleet"@PROGRAM@ --config @FOLDER@/config.yaml --set run.dir="$RUN" --set run.seed="$SEED" &
fi
child=$!
await_child
# before the time limit and at a preemption: the checkpoint is written
if [[ -n $stopped ]]; then
  # Slurm may have requeued it, and otherwise ends this script
  scontrol requeue "$SLURM_JOB_ID" && sleep 60
fi
exit "$code"
)";

constexpr const char* kActorsScript = R"(#!/bin/bash
# Actors of a run: each task of the array is a host that joins it.
#SBATCH --job-name=@NAME@-actors
#SBATCH --array=0-@LAST@
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=@CORES@
#SBATCH --time=@TIME@
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:TERM@@WARNING@
@OPTIONS@set -u
fleet=@FLEET@
@FORWARD@
host=$SLURMD_NODENAME.${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
"$fleet"@PROGRAM@ --join "$RUN" --host "$host" --actors @ACTORS@ \
  --join_timeout_s @JOIN_TIMEOUT@ &
child=$!
await_child
# a preemption, the time limit, or an agent that was killed; a run that is over
# ends with 0
if [[ -n $stopped || $code -gt 128 ]]; then
  scontrol requeue "$SLURM_JOB_ID" && sleep 60
fi
exit "$code"
)";

constexpr const char* kSubmit = R"(#!/bin/bash
# Submits the run with each of the given seeds:
#
#   ./submit          seed @SEED@
#   ./submit 1 2 3    three runs
#
# Run folders are seed-N in this folder. A run that has begun is resumed.
set -euo pipefail
cd @FOLDER@
(($# > 0)) || set -- @SEED@
for seed in "$@"; do
  # by the environment: --export would end a value at a comma
  export RUN=$PWD/seed-$seed SEED=$seed
  log=${RUN//%/%%}
  job=$(sbatch --parsable --export=ALL --output="$log.job.log" run.sbatch)
  echo "seed $seed: job $job, folder $RUN"
  @SUBMIT_ACTORS@
done
)";
constexpr const char* kSubmitActors =
    R"(actors=$(sbatch --parsable --dependency="after:$job" --export=ALL \
    --output="$log.actors.%a.log" actors.sbatch)
  echo "seed $seed: actors $actors")";

std::string Options(const std::string& partition,
                    const fleet::RoleResources& role, int64_t num_processes,
                    const fleet::SlurmConfig& slurm) {
  const int64_t memory_mb = role.memory_mb * num_processes;
  std::string text;
  const auto add = [&text](const std::string& option) {
    text += fmt::format("#SBATCH {}\n", option);
  };
  if (!partition.empty()) add("--partition=" + partition);
  if (!slurm.account.empty()) add("--account=" + slurm.account);
  if (role.memory_mb > 0) add(fmt::format("--mem={}M", memory_mb));
  if (role.gpus > 0) add(fmt::format("--gpus-per-task={}", role.gpus));
  for (const std::string& option : slurm.options) add(option);
  return text;
}

void WriteExecutable(const std::filesystem::path& file,
                     const std::string& text) {
  AtomicWriteFile(file, text, 0777);
}

}  // namespace

std::string RenderSlurm(const RenderInput& input) {
  const RunConfig& config = input.config;
  const fleet::ClusterConfig& cluster = config.cluster;
  const fleet::SlurmConfig& slurm = cluster.slurm;
  const auto& learner = cluster.roles.at("learner");
  const auto& actor = cluster.roles.at("actor");
  const replicator::ReplicationConfig& replication = config.learner.replication;
  const int64_t actors = ActorsPerHost(config, slurm.actor_tasks);
  const int64_t cores =
      learner.cores + config.replay.shards * cluster.roles.at("replay").cores +
      cluster.roles.at("evaluator").cores + cluster.local_actors * actor.cores;
  const std::vector<std::string> words =
      (cluster.programs.empty() ? input.commands
                                : input.commands.At(cluster.programs))
          .Of("fleet");
  std::string more_words;
  for (size_t i = 1; i < words.size(); ++i) {
    more_words += " " + ShellWord(words[i]);
  }
  const std::string folder = ShellWord(input.folder.string());
  std::vector<TemplateValue> values = {
      {"FORWARD", kForwardSignals},
      {"NAME", config.run.name},
      {"FOLDER", folder},
      {"FLEET", ShellWord(words[0])},
      {"PROGRAM", more_words},
      {"SEED", std::to_string(config.run.seed)},
      {"TIME", slurm.time_limit},
      {"WARNING", std::to_string(slurm.warning_s)},
      {"JOIN_TIMEOUT", fmt::format("{:.0f}", cluster.join_timeout_s)},
      {"ACTORS", std::to_string(actors)},
      {"LAST", std::to_string(slurm.actor_tasks - 1)},
      {"SUBMIT_ACTORS", slurm.actor_tasks > 0 ? kSubmitActors : ":"}};
  const auto with = [&values](std::vector<TemplateValue> more) {
    more.insert(more.end(), values.begin(), values.end());
    return more;
  };
  AtomicWriteFile(input.folder / "config.yaml", input.resolved_yaml);
  const int nodes = replication.uses_mpi() ? replication.num_processes() : 1;
  WriteExecutable(
      input.folder / "run.sbatch",
      FillIn(kRunScript,
             with({{"NODES", std::to_string(nodes)},
                   {"CORES", std::to_string(cores)},
                   {"OPTIONS", Options(slurm.partition, learner, 1, slurm)}})));
  if (slurm.actor_tasks > 0) {
    const std::string& partition =
        slurm.actor_partition.empty() ? slurm.partition : slurm.actor_partition;
    WriteExecutable(
        input.folder / "actors.sbatch",
        FillIn(kActorsScript,
               with({{"CORES", std::to_string(
                                   std::max<int64_t>(1, actors * actor.cores))},
                     {"OPTIONS", Options(partition, actor, actors, slurm)}})));
  }
  WriteExecutable(input.folder / "submit", FillIn(kSubmit, values));
  return fmt::format("wrote {0}; submit the run by {0}/submit [SEED ...]\n",
                     folder);
}

}  // namespace replicant::programs
