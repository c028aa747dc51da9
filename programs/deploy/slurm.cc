#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/fs.h"
#include "programs/deploy/deploy.h"
#include "programs/run/shell_word.h"

// One job for launcher, learner, replay and evaluator, an array of jobs that
// bring actors, and arrays of jobs that bring a worker of the learner, a
// parameter server or the inference server each. Array tasks join by the run's
// folder, which all nodes see, and may come, go and be requeued one by one.
namespace replicant::programs {
namespace {

// Before the time limit Slurm sends SIGTERM to the shell alone (B:), and with
// preempt_send_user_signal also when the time of grace of a
// preemption begins. When that is over, or without it, and at a scancel, Slurm
// sends SIGTERM to all processes of the job, and SIGKILL after KillWait. The
// program takes two SIGTERM for one.
constexpr const char* kForwardSignals = R"(
# SLURM_JOB_ID of an array's last task is the array's number, which stands for
# all tasks.
id=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
id=${id:-$SLURM_JOB_ID}
# shellcheck disable=SC2317  # called by the trap
job() { SLURM_TIME_FORMAT=standard scontrol --oneliner show job "$id"; }
# Whether Slurm ends the job although the run shall go on: its time limit is
# near, or a job with priority takes its place. A scancel is obeyed.
# shellcheck disable=SC2317  # called by the trap
comes_back() {
  local job end
  job=$(job)
  [[ $job =~ \ PreemptTime=[0-9] ]] && return 0
  # the warning comes up to a minute early, and is still being sent while the
  # job is SIGNALING
  [[ $job =~ \ JobState=(RUNNING|SIGNALING)\  && $job =~ \ EndTime=([0-9][^ ]+) ]] &&
    end=$(date --date="${BASH_REMATCH[1]}" +%s) &&
    ((end - $(date +%s) <= @WARNING@ + 90))
}
requeues=
trap 'kill -TERM "$child" 2>/dev/null; if comes_back; then requeues=1; fi' TERM
# a trap interrupts wait, and the program drains
await_child() {
  while kill -0 "$child" 2>/dev/null; do wait "$child"; done
  # bash keeps its code, also if it ended while the trap ran
  wait "$child" && code=0 || code=$?
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
@ENVIRONMENT@fleet=@FLEET@
@FORWARD@
if grep -q '^status: complete' "$RUN/state.yaml" 2>/dev/null; then exit 0; fi
if [[ -f $RUN/state.yaml ]]; then
  "$fleet"@PROGRAM@ --resume "$RUN" &
else
  "$fleet"@PROGRAM@ --config @FOLDER@/config.yaml --set run.dir="$RUN" --set run.seed="$SEED" &
fi
child=$!
await_child
if [[ -n $requeues ]]; then
  # Slurm may have requeued it, and otherwise ends this script
  scontrol requeue "$id" && sleep 60
fi
exit "$code"
)";

constexpr const char* kHostsScript = R"(#!/bin/bash
# @ROLE@ of a run: each task of the array is a host that joins it.
#SBATCH --job-name=@NAME@-@ROLE@
#SBATCH --array=0-@LAST@
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=@CORES@
#SBATCH --time=@TIME@
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:TERM@@WARNING@
@OPTIONS@set -u
@ENVIRONMENT@fleet=@FLEET@
@FORWARD@
@HOST@
"$fleet"@PROGRAM@ --join "$RUN" --host "$host" @OFFER@ \
  --join_timeout_s @JOIN_TIMEOUT@ &
child=$!
await_child
# or an agent that was killed; a run that is over ends with 0
if [[ -n $requeues ]] ||
  [[ $code -gt 128 && $(job) == *" JobState=RUNNING "* ]]; then
  scontrol requeue "$id" && sleep 60
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
  @SUBMIT_HOSTS@
done
)";
// An array that waits for the job.
constexpr const char* kSubmitHosts =
    R"(@ROLE@=$(sbatch --parsable --dependency="after:$job" --export=ALL \
    --output="$log.@ROLE@.%a.log" @ROLE@.sbatch)
  echo "seed $seed: @ROLE@ $@ROLE@")";

std::string Options(const std::string& partition, const JobResources& job,
                    const fleet::SlurmConfig& slurm) {
  std::string text;
  const auto add = [&text](const std::string& option) {
    text += fmt::format("#SBATCH {}\n", option);
  };
  if (!partition.empty()) add("--partition=" + partition);
  if (!slurm.account.empty()) add("--account=" + slurm.account);
  if (job.memory_mb > 0) add(fmt::format("--mem={}M", job.memory_mb));
  if (job.gpus > 0) add(fmt::format("--gpus-per-task={}", job.gpus));
  for (const std::string& option : slurm.options) add(option);
  return text;
}

void WriteExecutable(const std::filesystem::path& file,
                     const std::string& text) {
  AtomicWriteFile(file, text, 0777);
}

// The array of one kind of hosts.
struct Array {
  std::string role;  // "actors", "workers", "servers", "inference"
  int64_t num_tasks = 0;
  std::string partition;
  JobResources job;
  std::string host;   // line that sets $host
  std::string offer;  // options of fleet --join
};

std::vector<Array> ArraysOf(const RunConfig& config) {
  const fleet::ClusterConfig& cluster = config.cluster;
  const fleet::SlurmConfig& slurm = cluster.slurm;
  const int64_t actors = ActorsPerHost(config, slurm.actor_tasks);
  std::vector<Array> arrays;
  if (slurm.actor_tasks > 0 && config.has_actors()) {
    arrays.push_back(
        {.role = "actors",
         .num_tasks = slurm.actor_tasks,
         .partition = slurm.actor_partition.empty() ? slurm.partition
                                                    : slurm.actor_partition,
         .job = SumOf(cluster, {{"actor", std::max<int64_t>(1, actors)}}),
         .host = "host=$SLURMD_NODENAME.${SLURM_ARRAY_JOB_ID}_"
                 "$SLURM_ARRAY_TASK_ID",
         .offer = fmt::format("--actors {}", actors)});
  }
  const auto add = [&](const char* name, const std::string& role, int first,
                       const char* keep) {
    const int64_t count = NumHosts(config, role);
    if (count == 0) return;
    arrays.push_back(
        {.role = name,
         .num_tasks = count,
         .partition = slurm.partition,
         .job = SumOf(cluster, {{role, 1}}),
         .host = fmt::format("role={}-$((SLURM_ARRAY_TASK_ID + {}))\n"
                             "host=$SLURMD_NODENAME.$SLURM_ARRAY_JOB_ID.$role",
                             role, first),
         .offer = fmt::format("--role \"$role\"{}", keep)});
  };
  add("workers", "worker", /*first=*/1, "");
  // on another node it goes on from what it has saved in the run's folder
  add("servers", "server", /*first=*/0, " --keep \"$RUN\"");
  add("inference", "inference", /*first=*/0, "");
  return arrays;
}

}  // namespace

std::string RenderSlurm(const RenderInput& input) {
  const RunConfig& config = input.config;
  const fleet::ClusterConfig& cluster = config.cluster;
  const fleet::SlurmConfig& slurm = cluster.slurm;
  const replicator::ReplicationConfig& replication = config.learner.replication;
  const JobResources run_job = LauncherResources(config);
  const std::vector<std::string> words =
      (cluster.programs.empty() ? input.commands
                                : input.commands.At(cluster.programs))
          .Of("fleet");
  std::string more_words;
  for (size_t i = 1; i < words.size(); ++i) {
    more_words += " " + ShellWord(words[i]);
  }
  const std::string folder = ShellWord(input.folder.string());
  const std::string make_env = MakeEnvOf(config);
  const std::vector<Array> arrays = ArraysOf(config);
  std::string submit_hosts = arrays.empty() ? ":" : "";
  for (const Array& array : arrays) {
    submit_hosts += (submit_hosts.empty() ? "" : "\n  ") +
                    FillIn(kSubmitHosts, {{"ROLE", array.role}});
  }
  std::vector<TemplateValue> values = {
      {"FORWARD",
       FillIn(kForwardSignals, {{"WARNING", std::to_string(slurm.warning_s)}})},
      {"NAME", config.run.name},
      {"ENVIRONMENT", make_env.empty()
                          ? ""
                          : fmt::format("export {}={}\n", env::kMakeEnvVariable,
                                        ShellWord(make_env))},
      {"FOLDER", folder},
      {"FLEET", ShellWord(words[0])},
      {"PROGRAM", more_words},
      {"SEED", std::to_string(config.run.seed)},
      {"TIME", slurm.time_limit},
      {"WARNING", std::to_string(slurm.warning_s)},
      {"JOIN_TIMEOUT", fmt::format("{:.0f}", cluster.join_timeout_s)},
      {"SUBMIT_HOSTS", submit_hosts}};
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
                   {"CORES", std::to_string(run_job.cores)},
                   {"OPTIONS", Options(slurm.partition, run_job, slurm)}})));
  for (const Array& array : arrays) {
    WriteExecutable(
        input.folder / (array.role + ".sbatch"),
        FillIn(
            kHostsScript,
            with({{"ROLE", array.role},
                  {"LAST", std::to_string(array.num_tasks - 1)},
                  {"HOST", array.host},
                  {"OFFER", array.offer},
                  {"CORES", std::to_string(array.job.cores)},
                  {"OPTIONS", Options(array.partition, array.job, slurm)}})));
  }
  WriteExecutable(input.folder / "submit", FillIn(kSubmit, values));
  return fmt::format("wrote {0}; submit the run by {0}/submit [SEED ...]\n",
                     folder);
}

}  // namespace replicant::programs
