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
#include <spdlog/spdlog.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "actors/actor.h"
#include "actors/hindsight.h"
#include "base/error.h"
#include "base/file_lock.h"
#include "base/fs.h"
#include "base/metrics/rewind.h"
#include "base/process.h"
#include "fleet/run_folder.h"
#include "learner/checkpoint_folder.h"
#include "learner/learner.h"
#include "programs/lockstep/lockstep_source.h"
#include "programs/lockstep/periodic_evaluation.h"
#include "programs/run/check_resume.h"
#include "programs/run/check_run.h"
#include "programs/run/learning_curve.h"
#include "programs/run/mix_prior.h"
#include "programs/run/run_model.h"
#include "programs/run/step_shape.h"
#include "replay/checkpoint/checkpointer.h"
#include "replay/client/local_replay.h"
#include "replay/prior/mixed_source.h"
#include "replicator/make_replicator.h"

namespace replicant::programs {
namespace {

replay::LocalReplayOptions ReplayOptionsOf(const RunConfig& config,
                                           const agents::TaskSpec& task) {
  replay::LocalReplayOptions options{.shard = config.replay.MakeShardConfig(),
                                     .group_steps = config.actors.group_steps,
                                     .codec = config.actors.codec,
                                     .batch_size = ActedRows(config),
                                     .importance = config.learner.importance,
                                     .kept_frames = config.learner.frame_store};
  options.shard.shape = StepShapeOf(task);
  options.shard.has_float_rows = true;
  options.shard.tables[0].n_step.stack = task.frame_stack;
  return options;
}

// Throws ConfigError for settings that lockstep does not support.
void Check(const RunConfig& config) {
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
  if (config.actors.count != 1) {
    spdlog::warn(
        "actors.count: {}: lockstep has one actor, with the {} of "
        "actors.environments",
        config.actors.count, config.actors.environments);
  }
}

// Makes and locks the run's folder. Throws ConfigError for a folder of
// something else or of another run, and IoError while another process trains
// there.
FileLock LockFolder(const RunConfig& config, const std::string& resolved_yaml,
                    const std::filesystem::path& folder) {
  const auto refuse = [&folder](const char* why) {
    throw ConfigError(fmt::format("run.dir: {}: {}", folder.string(), why));
  };
  if (fleet::RunFolder::StatusOf(folder)) {
    refuse("a run of a fleet; hint: fleet --resume continues it");
  }
  MakeFolders(folder);
  // the learner's first file
  if (!std::filesystem::exists(folder / "learner.jsonl")) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().filename() != "lock") {
        refuse("it is not empty and holds no run; choose another folder");
      }
    }
  }
  CheckSameRun(config, resolved_yaml, folder);
  return fleet::RunFolder::Lock(folder);
}

// Returns the newest checkpoint whose parts can all be read, and leaves out
// newer ones; nothing for a new run. Throws IoError if there are checkpoints
// and none can be read.
std::optional<learner::Manifest> FindStart(
    const std::filesystem::path& folder) {
  const std::filesystem::path checkpoints = folder / "checkpoints";
  // a new run's folder stays empty until its parts accept the configuration
  if (!std::filesystem::exists(checkpoints)) return std::nullopt;
  const learner::CheckpointFolder all(checkpoints, /*num_kept=*/1);
  const std::string damage =
      all.LeaveOutDamaged([&](const learner::Manifest& manifest) {
        const std::filesystem::path part = all.PathOf(manifest.step);
        std::string found = replay::FindDamage(folder / "replay", manifest.id);
        if (found.empty()) found = LockstepSource::FindDamage(part);
        if (found.empty()) found = replay::MixedSource::FindDamage(part);
        return found;
      });
  if (!damage.empty()) {
    throw IoError(fmt::format("{}: no checkpoint can be read: {}",
                              checkpoints.string(), damage));
  }
  return all.NewestManifest();
}

// Restores the shard of the checkpoint that `manifest` names. Without a
// complete checkpoint the run begins anew, and the replay's part of any other
// is set aside.
std::unique_ptr<replay::Checkpointer> MakeCheckpointer(
    const RunConfig& config, const std::filesystem::path& folder,
    const std::optional<learner::Manifest>& manifest, replay::Shard* shard) {
  replay::CheckpointOptions options;
  options.folder = folder / "replay";
  // one more: the part of the checkpoint that is about to become complete
  options.num_kept = config.learner.num_kept_checkpoints + 1;
  if (manifest) {
    options.restore_id = manifest->id;
  } else if (std::filesystem::exists(options.folder)) {
    std::filesystem::path aside = folder / "replay.unfinished";
    for (int i = 2; std::filesystem::exists(aside); ++i) {
      aside = folder / fmt::format("replay.unfinished-{}", i);
    }
    spdlog::warn("{} belongs to no complete checkpoint; it is now {}",
                 options.folder.string(), aside.string());
    std::filesystem::rename(options.folder, aside);
  }
  return std::make_unique<replay::Checkpointer>(options, shard);
}

// The parts of a run, in the order in which they need each other.
class LockstepTraining {
 public:
  LockstepTraining(const RunConfig& config, const env::TaskRegistry& tasks,
                   const std::string& resolved_yaml);

  // Trains to the end of the run.
  void Run();

 private:
  replay::BatchSource* batches() {
    if (mixed_) return mixed_.get();
    return &source_;
  }
  std::vector<replay::StepSink*> Writers();
  std::filesystem::path CheckpointOf(const learner::Manifest& manifest) const {
    return learner::CheckpointReader(folder_ / "checkpoints")
        .PathOf(manifest.step);
  }
  int64_t num_frames() const {
    return actor_.num_steps() * task_.action_repeat;
  }

  const RunConfig& config_;
  const env::TaskRegistry& tasks_;
  const std::string& resolved_yaml_;
  const uint64_t seed_;
  env::VectorEnvironment environments_;
  const agents::TaskSpec task_;

  // writes to the replay
  replay::LocalReplay replay_;
  std::vector<replay::LocalReplay::Writer> writers_;
  actors::HindsightSinks sinks_;

  // made once environments and replay have accepted the configuration
  const std::filesystem::path folder_;
  const FileLock lock_;
  const std::optional<learner::Manifest> manifest_;  // FindStart()

  // draws from the replay
  actors::PolicyRunner policy_;
  LockstepSource source_;
  const std::unique_ptr<replay::MixedSource> mixed_;  // null: no prior data
  const std::unique_ptr<learner::Workload> workload_;

  actors::Actor actor_;

  // Restores the replay as `manifest_` has it. Made once all others have
  // accepted the configuration: it begins the run's folder.
  std::unique_ptr<replay::Checkpointer> checkpointer_;
};

LockstepTraining::LockstepTraining(const RunConfig& config,
                                   const env::TaskRegistry& tasks,
                                   const std::string& resolved_yaml)
    : config_(config),
      tasks_(tasks),
      resolved_yaml_(resolved_yaml),
      seed_(static_cast<uint64_t>(config.run.seed)),
      environments_(env::MakeConfiguredEnvironments(tasks, config.task, seed_,
                                                    /*first_index=*/0,
                                                    config.actors.environments),
                    {}),
      task_(agents::MakeTaskSpec(config.task, environments_.environment(0))),
      replay_(ReplayOptionsOf(config, task_)),
      sinks_(config.actors.hindsight, config.task.name, seed_,
             /*first_environment=*/0, &environments_, Writers()),
      folder_(RunFolderOf(config)),
      lock_(LockFolder(config, resolved_yaml, folder_)),
      manifest_(FindStart(folder_)),
      policy_(*config.MakeAgent(), task_,
              {.backend = config.learner.replication.policy_backend(),
               .num_environments = environments_.size(),
               .seed = seed_}),
      source_(&replay_, &policy_),
      mixed_(MixPrior(config, task_, &source_, /*disk=*/nullptr)),
      workload_(config.workload->make(config.section(),
                                      {.learner = config.learner,
                                       .seed = seed_,
                                       .replicator = replicator::MakeReplicator(
                                           config.learner.replication, seed_),
                                       .spec = config.SpecOf(task_),
                                       .source = batches()})),
      actor_(task_, &environments_, &policy_, sinks_.sinks(),
             {.exploration = config.actors.exploration,
              .num_all_environments = environments_.size(),
              .seed = seed_,
              .keeps_state = true,
              .long_episode_steps = config.evaluation.max_episode_steps}) {
  if (environments_.environment(0).StepsWithOthers()) {
    throw ConfigError(fmt::format(
        "task.name: {}: its make_env makes a batch, whose environments cannot "
        "be brought back to the step of a checkpoint; lockstep wants one "
        "environment, a fleet takes both",
        config.task.name));
  }
  checkpointer_ =
      MakeCheckpointer(config, folder_, manifest_, &replay_.shard());
  source_.Connect(&actor_, &sinks_, &writers_, workload_.get(),
                  checkpointer_.get());
  if (manifest_) source_.Restore(CheckpointOf(*manifest_));
}

std::vector<replay::StepSink*> LockstepTraining::Writers() {
  for (int64_t e = 0; e < environments_.size(); ++e) {
    writers_.emplace_back(&replay_, static_cast<uint64_t>(e) + 1);
  }
  std::vector<replay::StepSink*> sinks;
  sinks.reserve(writers_.size());
  for (auto& writer : writers_) sinks.push_back(&writer);
  return sinks;
}

void LockstepTraining::Run() {
  const StopSignal stop;
  std::optional<PeriodicEvaluation> evaluation;
  learner::Progress newest;
  learner::Learner learner(
      config_.learner, folder_, workload_.get(),
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
       .config_yaml = resolved_yaml_});
  // replay and actor are at the manifest's step
  if (manifest_ && learner.step() != manifest_->step) {
    throw IoError(fmt::format("{}: the learner's part cannot be read",
                              CheckpointOf(*manifest_).string()));
  }
  metrics::RewindRun(folder_, learner.step(), num_frames());
  if (const std::string why = FindGoodReturn(config_.evaluation, folder_);
      !why.empty()) {
    spdlog::info("the run is complete: {}", why);
    return;
  }
  if (config_.evaluation.enabled) {
    evaluation.emplace(config_, tasks_, folder_, workload_.get(), &stop);
    evaluation->ScheduleAfter(learner.seconds(), num_frames());
  }
  AtomicWriteFile(folder_ / "config.yaml",
                  KeepModel(config_, tasks_, folder_, resolved_yaml_));
  learner.Run();
  if (evaluation) {
    evaluation->RunLast(newest, num_frames());
    DrawCurveOfRun(folder_, config_.task.name);
  }
  if (!learner.unsaved().empty()) throw IoError(learner.unsaved());
}

}  // namespace

void TrainInLockstep(const RunConfig& config, const env::TaskRegistry& tasks,
                     const std::string& resolved_yaml) {
  Check(config);
  LockstepTraining(config, tasks, resolved_yaml).Run();
}

}  // namespace replicant::programs
