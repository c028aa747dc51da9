#include "programs/lockstep/lockstep_program.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/actor.h"
#include "actors/evaluation_log.h"
#include "actors/evaluator.h"
#include "core/base/error.h"
#include "core/base/fs.h"
#include "core/base/process.h"
#include "learner/checkpoint_folder.h"
#include "learner/learner.h"
#include "learner/workloads/agent/transition_source.h"
#include "programs/learning_curve.h"
#include "programs/lockstep/lockstep_state.h"
#include "replay/checkpoint/checkpointer.h"
#include "replay/client/local_replay.h"

namespace replicant::programs {
namespace {

// Steps that go straight into the replay.
class LocalSink : public actors::StepSink {
 public:
  LocalSink(replay::LocalReplay* replay, uint64_t id) : writer_(replay, id) {}

  void BeginEpisode() override { writer_.BeginEpisode(); }
  void Append(const actors::ActorStep& step) override {
    writer_.Append(step.observation, step.frame, step.action, step.reward,
                   step.discount);
  }
  void EndEpisode(std::span<const std::byte> observation,
                  std::span<const std::byte> frame) override {
    writer_.EndEpisode(observation, frame);
  }
  replay::LocalReplay::Writer& writer() { return writer_; }

 private:
  replay::LocalReplay::Writer writer_;
};

// Where in a checkpoint's folder the state of actor and writers lies.
constexpr const char* kStateFile = "lockstep.safetensors";

// Lets the actor act until the replay gives a batch. Its checkpoints hold
// everything, so that a run that goes on from one equals one that was not
// stopped: the shard, and what actor and writers are in the middle of.
class LockstepTransitions : public learner::TransitionSource {
 public:
  LockstepTransitions(replay::LocalReplay* replay,
                      replay::Checkpointer* checkpointer,
                      actors::PolicyRunner* policy)
      : replay_(*replay), checkpointer_(*checkpointer), policy_(*policy) {}

  void Connect(actors::Actor* actor, std::vector<LocalSink>* sinks,
               learner::Workload* workload) {
    actor_ = actor;
    sinks_ = sinks;
    workload_ = workload;
  }

  replay::ReadResult Next(Clock::TimePoint deadline,
                          replay::Batch* batch) override {
    // a batch that was begun is drawn to its end
    if (is_paused_ && !replay_.IsDrawing()) return replay::ReadResult::kPaused;
    while (!replay_.Next(batch)) {
      if (Clock::Real().Now() >= deadline) return replay::ReadResult::kTimeout;
      TakeUpParameters();
      // what waits for the rate limiter goes in with the next draws
      static_cast<void>(replay_.MayWrite());
      actor_->Step();
    }
    return replay::ReadResult::kOk;
  }
  void UpdatePriorities(const replay::Batch& batch,
                        std::span<const float> priorities) override {
    replay_.UpdatePriorities(batch, priorities);
    has_learned_ = true;
  }

  void SetPaused(bool is_paused) override { is_paused_ = is_paused; }
  void StartCheckpoint(uint64_t id,
                       const std::filesystem::path& folder) override {
    LockstepState state{.actor = actor_->state(), .waiting = replay_.waiting()};
    for (LocalSink& sink : *sinks_) {
      state.writers.push_back(sink.writer().state());
    }
    WriteLockstepState(folder / kStateFile, state);
    checkpointer_.Save(replay_.shard().TakeSnapshot(), id);
  }
  // It is written when StartCheckpoint() returns.
  learner::InputPart PollCheckpoint() override {
    return learner::InputPart::kSaved;
  }
  // Goes on from the state that StartCheckpoint() wrote.
  void Restore(const std::filesystem::path& folder) {
    const LockstepState state = ReadLockstepState(folder / kStateFile);
    for (size_t e = 0; e < std::min(state.writers.size(), sinks_->size());
         ++e) {
      (*sinks_)[e].writer().Restore(state.writers[e]);
    }
    replay_.set_waiting(state.waiting);
    actor_->Restore(state.actor);
  }

  // The actor's policy becomes the learner's.
  void TakeUpParameters() {
    if (!has_learned_) return;
    for (const std::string& name : workload_->PublishedVariables()) {
      policy_.variables().Set(name, workload_->variables().Get(name).view());
    }
    has_learned_ = false;
  }

 private:
  replay::LocalReplay& replay_;
  replay::Checkpointer& checkpointer_;
  actors::PolicyRunner& policy_;
  actors::Actor* actor_ = nullptr;
  std::vector<LocalSink>* sinks_ = nullptr;
  learner::Workload* workload_ = nullptr;
  bool has_learned_ = true;
  bool is_paused_ = false;
};

// Tries a workload's policy out now and then.
class Trials {
 public:
  Trials(const RunConfig& config, const env::TaskRegistry& registry,
         const std::filesystem::path& folder, learner::Workload* workload)
      : config_(config.evaluation),
        workload_(*workload),
        evaluator_(registry, {.task = config.task,
                              .agent = config.MakeAgent(),
                              .evaluation = config.evaluation,
                              .backend = config.learner.replication.backend}),
        log_(folder, actors::FindBeginning(folder)) {}

  void Run(const learner::Progress& progress, int64_t num_frames) {
    for (const std::string& name : workload_.PublishedVariables()) {
      evaluator_.policy().variables().Set(
          name, workload_.variables().Get(name).view());
    }
    const double seconds = log_.Now();
    const auto trial = evaluator_.Run(/*video=*/"", [] { return false; });
    const actors::EvaluationRecord record =
        actors::MakeRecord(seconds, progress.step, num_frames, trial->result);
    log_.Write(record);
    spdlog::info(
        "{:.0f} s: {} updates, {} frames, {:.1f} updates/s, return {:.1f} +- "
        "{:.1f}",
        progress.seconds, progress.step, num_frames, progress.steps_per_s,
        record.mean, record.standard_deviation);
    if (config_.IsGoodEnough(record.mean)) {
      spdlog::info("the return reaches evaluation.stop_at_return");
      is_good_enough_ = true;
    }
    step_ = progress.step;
  }

  bool is_good_enough() const { return is_good_enough_; }
  // What was tried out last.
  int64_t step() const { return step_; }

 private:
  const actors::EvaluationConfig config_;
  learner::Workload& workload_;
  actors::Evaluator evaluator_;
  actors::EvaluationLog log_;
  bool is_good_enough_ = false;
  int64_t step_ = -1;
};
// The replay's part of the run's checkpoints. Without a complete one of them
// the run begins anew, and what is left of it is of no use.
std::unique_ptr<replay::Checkpointer> MakeCheckpointer(
    const RunConfig& config, const std::filesystem::path& folder,
    const std::optional<learner::Manifest>& manifest, replay::Shard* shard) {
  replay::CheckpointOptions options;
  options.folder = folder / "replay";
  // and the part of the one that is about to become complete
  options.num_kept = config.learner.num_kept_checkpoints + 1;
  if (manifest) {
    options.restore_id = manifest->id;
  } else {
    std::filesystem::remove_all(options.folder);
  }
  return std::make_unique<replay::Checkpointer>(options, shard);
}

int Run(const Invocation& invocation) {
  const RunConfig& config = invocation.config();
  if (!config.has_actors()) {
    throw ConfigError(fmt::format(
        "learner.workload: {} has no actors; lockstep trains agents",
        config.workload->name));
  }
  const env::TaskRegistry& registry = invocation.registry.tasks;
  const auto seed = static_cast<uint64_t>(config.run.seed);
  env::VectorEnvironment environments(
      env::MakeConfiguredEnvironments(registry, config.task, seed,
                                      /*first_index=*/0,
                                      config.actors.environments),
      {});
  const agents::TaskSpec task = agents::MakeTaskSpec(
      config.task,
      *env::MakeConfiguredEnvironment(registry, config.task, seed, 0));

  replay::LocalReplayOptions replay_options{
      .shard = config.replay.MakeShardConfig(),
      .group_steps = config.actors.group_steps,
      .codec = config.actors.codec,
      .batch_size = config.learner.batch_size};
  replay_options.shard.shape = {.observation_bytes = task.observation_bytes(),
                                .action_bytes = task.action_bytes(),
                                .frame_bytes = task.frame_bytes()};
  replay::NStepConfig& n_step = replay_options.shard.tables[0].n_step;
  n_step.stack = task.frame_stack;
  replay::LocalReplay replay(replay_options);
  const std::filesystem::path folder = RunFolderOf(config);
  const learner::CheckpointFolder checkpoints(
      folder / "checkpoints", config.learner.num_kept_checkpoints);
  const auto manifest = checkpoints.NewestManifest();
  const auto checkpointer =
      MakeCheckpointer(config, folder, manifest, &replay.shard());

  actors::PolicyRunner policy(*config.MakeAgent(), task,
                              {.backend = config.learner.replication.backend,
                               .num_environments = environments.size(),
                               .seed = seed});
  LockstepTransitions transitions(&replay, checkpointer.get(), &policy);
  const std::unique_ptr<learner::Workload> workload = config.workload->make(
      config.section(), {.learner = config.learner,
                         .seed = seed,
                         .replicator = replicator::Replicator::Create(
                             config.learner.replication, seed),
                         .spec = {.task = task, .discount = config.discount()},
                         .source = &transitions});

  std::vector<LocalSink> sinks;
  for (int64_t e = 0; e < environments.size(); ++e) {
    sinks.emplace_back(&replay, static_cast<uint64_t>(e) + 1);
  }
  std::vector<actors::StepSink*> sink_pointers;
  sink_pointers.reserve(sinks.size());
  for (LocalSink& sink : sinks) sink_pointers.push_back(&sink);
  actors::Actor actor(task, &environments, &policy, sink_pointers,
                      {.exploration = config.actors.exploration,
                       .num_all_environments = environments.size(),
                       .seed = seed,
                       .keeps_state = true});
  transitions.Connect(&actor, &sinks, workload.get());
  if (manifest) transitions.Restore(checkpoints.PathOf(manifest->step));

  const StopSignal stop;
  std::optional<Trials> trials;
  if (config.evaluation.enabled) {
    trials.emplace(config, registry, folder, workload.get());
  }
  double next_trial_s = 0.0;
  learner::Progress newest;
  const auto evaluate = [&](const learner::Progress& progress) {
    newest = progress;
    if (!trials || progress.seconds < next_trial_s) return;
    next_trial_s = progress.seconds + config.evaluation.interval_s;
    trials->Run(progress, actor.num_steps() * task.action_repeat);
  };
  learner::Learner learner(config.learner, folder, workload.get(),
                           {.should_stop =
                                [&] {
                                  return stop.count() > 0 ||
                                         (trials && trials->is_good_enough());
                                },
                            .on_progress = evaluate});
  next_trial_s = learner.seconds() + config.evaluation.interval_s;
  // the rest is of this step alone
  if (manifest && learner.step() != manifest->step) {
    throw IoError(fmt::format("{}: the learner's part cannot be read",
                              checkpoints.PathOf(manifest->step).string()));
  }
  AtomicWriteFile(folder / "config.yaml", invocation.loaded.resolved_yaml);
  learner.Run();
  if (trials && trials->step() != newest.step) {
    trials->Run(newest, actor.num_steps() * task.action_repeat);
  }
  if (trials) DrawCurveOfRun(folder, config.task.name);
  return 0;
}

}  // namespace

Program LockstepProgram() {
  return {.name = "lockstep",
          .about = "Trains in one process, in a fixed order.",
          .run = Run};
}

}  // namespace replicant::programs
