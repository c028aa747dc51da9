// Actor and learner take turns through the replay's rate limiter: the learner
// draws a batch; while the limiter refuses, LockstepSource steps the actor,
// whose writers insert into the same replay. There is no other thread, so the
// order of all calls, and with it every random draw, follows from the
// configuration.
//
// A checkpoint has three parts with one id: the learner's variables, the
// replay's shard, and the state of actor and writers. They are written between
// two batches, when nothing is under way.
#include "programs/lockstep/lockstep_training.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "actors/actor.h"
#include "core/base/error.h"
#include "core/base/fs.h"
#include "core/base/process.h"
#include "learner/checkpoint_folder.h"
#include "learner/learner.h"
#include "programs/check_run.h"
#include "programs/learning_curve.h"
#include "programs/lockstep/lockstep_source.h"
#include "programs/lockstep/periodic_evaluation.h"
#include "programs/run_model.h"
#include "programs/step_shape.h"
#include "replay/checkpoint/checkpointer.h"
#include "replay/client/local_replay.h"

namespace replicant::programs {
namespace {

replay::LocalReplayOptions ReplayOptionsOf(const RunConfig& config,
                                           const agents::TaskSpec& task) {
  replay::LocalReplayOptions options{.shard = config.replay.MakeShardConfig(),
                                     .group_steps = config.actors.group_steps,
                                     .codec = config.actors.codec,
                                     .batch_size = config.learner.batch_size,
                                     .importance = config.learner.importance};
  options.shard.shape = StepShapeOf(task);
  options.shard.tables[0].n_step.stack = task.frame_stack;
  return options;
}

// Restores the shard of the checkpoint that `manifest` names. Without a
// complete checkpoint the run begins anew, and the replay's part of any other
// is removed.
std::unique_ptr<replay::Checkpointer> MakeCheckpointer(
    const RunConfig& config, const std::filesystem::path& folder,
    const std::optional<learner::Manifest>& manifest, replay::Shard* shard) {
  replay::CheckpointOptions options;
  options.folder = folder / "replay";
  // one more: the part of the checkpoint that is about to become complete
  options.num_kept = config.learner.num_kept_checkpoints + 1;
  if (manifest) {
    options.restore_id = manifest->id;
  } else {
    std::filesystem::remove_all(options.folder);
  }
  return std::make_unique<replay::Checkpointer>(options, shard);
}

}  // namespace

void TrainInLockstep(const RunConfig& config, const env::TaskRegistry& tasks,
                     const std::string& resolved_yaml) {
  if (!config.has_actors()) {
    throw ConfigError(fmt::format(
        "learner.workload: {} has no actors; lockstep trains agents",
        config.workload->name));
  }
  CheckReplay(config.replay, config.learner.batch_size);
  if (config.replay.shards != 1) {
    throw ConfigError(fmt::format(
        "replay.shards: {}: lockstep keeps its replay in its own process, "
        "where shards divide no work; allowed: 1",
        config.replay.shards));
  }

  // the task
  const auto seed = static_cast<uint64_t>(config.run.seed);
  env::VectorEnvironment environments(
      env::MakeConfiguredEnvironments(tasks, config.task, seed,
                                      /*first_index=*/0,
                                      config.actors.environments),
      {});
  const agents::TaskSpec task = agents::MakeTaskSpec(
      config.task,
      *env::MakeConfiguredEnvironment(tasks, config.task, seed, 0));

  // the replay, as the newest complete checkpoint has it
  replay::LocalReplay replay(ReplayOptionsOf(config, task));
  const std::filesystem::path folder = RunFolderOf(config);
  const learner::CheckpointFolder checkpoints(
      folder / "checkpoints", config.learner.num_kept_checkpoints);
  const auto manifest = checkpoints.NewestManifest();
  const auto checkpointer =
      MakeCheckpointer(config, folder, manifest, &replay.shard());

  // the learner's workload, which draws from the replay
  actors::PolicyRunner policy(
      *config.MakeAgent(), task,
      {.backend = config.learner.replication.policy_backend(),
       .num_environments = environments.size(),
       .seed = seed});
  LockstepSource source(&replay, checkpointer.get(), &policy);
  const std::unique_ptr<learner::Workload> workload = config.workload->make(
      config.section(), {.learner = config.learner,
                         .seed = seed,
                         .replicator = replicator::Replicator::Create(
                             config.learner.replication, seed),
                         .spec = config.SpecOf(task),
                         .source = &source});

  // the actor, which writes to it
  std::vector<replay::LocalReplay::Writer> writers;
  for (int64_t e = 0; e < environments.size(); ++e) {
    writers.emplace_back(&replay, static_cast<uint64_t>(e) + 1);
  }
  std::vector<replay::StepSink*> sinks;
  sinks.reserve(writers.size());
  for (auto& writer : writers) sinks.push_back(&writer);
  actors::Actor actor(task, &environments, &policy, sinks,
                      {.exploration = config.actors.exploration,
                       .num_all_environments = environments.size(),
                       .seed = seed,
                       .keeps_state = true});
  source.Connect(&actor, &writers, workload.get());
  if (manifest) source.Restore(checkpoints.PathOf(manifest->step));

  // the loop, with evaluations at its reports
  const StopSignal stop;
  std::optional<PeriodicEvaluation> evaluation;
  if (config.evaluation.enabled) {
    evaluation.emplace(config, tasks, folder, workload.get());
  }
  const auto num_frames = [&] {
    return actor.num_steps() * task.action_repeat;
  };
  learner::Progress newest;
  learner::Learner learner(
      config.learner, folder, workload.get(),
      {.should_stop =
           [&] {
             return stop.count() > 0 ||
                    (evaluation && evaluation->is_good_enough());
           },
       .on_progress =
           [&](const learner::Progress& progress) {
             newest = progress;
             if (evaluation) evaluation->RunIfDue(progress, num_frames());
           },
       .config_yaml = resolved_yaml});
  if (evaluation) evaluation->ScheduleAfter(learner.seconds(), num_frames());
  // replay and actor are those of the manifest's step
  if (manifest && learner.step() != manifest->step) {
    throw IoError(fmt::format("{}: the learner's part cannot be read",
                              checkpoints.PathOf(manifest->step).string()));
  }
  std::filesystem::remove_all(folder / "model");
  AtomicWriteFile(folder / "config.yaml",
                  KeepModel(config, tasks, folder, resolved_yaml));
  learner.Run();
  if (evaluation) {
    evaluation->RunLast(newest, num_frames());
    DrawCurveOfRun(folder, config.task.name);
  }
}

}  // namespace replicant::programs
