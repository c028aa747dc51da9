// Actor, replay and learner in one process, in a fixed order and without
// threads between them: the same seed gives the same run. For tests, debugging
// and small tasks.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "actors/actor.h"
#include "actors/evaluation.h"
#include "core/base/fs.h"
#include "core/base/process.h"
#include "env/tasks/suite.h"
#include "learner/learner.h"
#include "learner/workloads/d4pg/d4pg_workload.h"
#include "replay/local_replay.h"
#include "training/program.h"

namespace replicant::fleet {
namespace {

using training::TrainingConfig;

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

 private:
  replay::LocalReplay::Writer writer_;
};

// Lets the actor act until the replay gives a batch.
class LockstepTransitions : public learner::TransitionSource {
 public:
  LockstepTransitions(replay::LocalReplay* replay, actors::PolicyRunner* policy)
      : replay_(*replay), policy_(*policy) {}

  void Connect(actors::Actor* actor, learner::Workload* workload) {
    actor_ = actor;
    workload_ = workload;
  }

  replay::ReadResult Next(Clock::TimePoint deadline,
                          replay::Batch* batch) override {
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
  actors::PolicyRunner& policy_;
  actors::Actor* actor_ = nullptr;
  learner::Workload* workload_ = nullptr;
  bool has_learned_ = true;
};

int Run(const TrainingConfig& config, const std::string& resolved_yaml) {
  const auto seed = static_cast<uint64_t>(config.run.seed);
  const env::TaskRegistry registry(env::SuiteTasks());
  env::VectorEnvironment environments(
      env::MakeConfiguredEnvironments(registry, config.task, seed,
                                      /*first_index=*/0,
                                      config.actors.environments),
      {});
  const auto trial = env::MakeConfiguredEnvironment(
      registry, config.task, static_cast<uint64_t>(config.evaluation.seed), 0);
  const agents::TaskSpec task = agents::MakeTaskSpec(config.task, *trial);

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

  const auto make_policy = [&](int64_t num_environments, bool has_noise) {
    return actors::PolicyRunner(config.agent.networks, task,
                                {.backend = config.learner.replication.backend,
                                 .num_environments = num_environments,
                                 .has_noise = has_noise,
                                 .seed = seed});
  };
  actors::PolicyRunner policy = make_policy(environments.size(), true);
  actors::PolicyRunner trial_policy = make_policy(1, false);
  LockstepTransitions transitions(&replay, &policy);
  learner::D4pgWorkload workload(
      learner::MakeD4pgWorkloadOptions(config.learner, config.agent, task,
                                       n_step.discount, config.run.seed),
      &transitions);

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
                       .seed = seed});
  transitions.Connect(&actor, &workload);

  const std::filesystem::path folder =
      config.run.dir.empty() ? "runs/" + config.run.name : config.run.dir;
  const StopSignal stop;
  double next_trial_s = config.evaluation.interval_s;
  const auto evaluate = [&](const learner::Progress& progress) {
    for (const std::string& name : workload.PublishedVariables()) {
      trial_policy.variables().Set(name, workload.variables().Get(name).view());
    }
    const actors::EvaluationResult result =
        actors::Evaluate(task, trial.get(), &trial_policy,
                         {.num_episodes = config.evaluation.episodes,
                          .return_scale = task.return_scale});
    spdlog::info(
        "{:.0f} s: {} updates, {} frames, {:.1f} updates/s, return {:.1f} +- "
        "{:.1f}",
        progress.seconds, progress.step,
        actor.num_steps() * config.task.action_repeat, progress.steps_per_s,
        result.Mean(), result.StandardDeviation());
  };
  learner::Learner learner(config.learner, folder, &workload,
                           {.should_stop = [&] { return stop.count() > 0; },
                            .on_progress =
                                [&](const learner::Progress& progress) {
                                  if (progress.seconds < next_trial_s) return;
                                  next_trial_s = progress.seconds +
                                                 config.evaluation.interval_s;
                                  evaluate(progress);
                                }});
  AtomicWriteFile(folder / "config.yaml", resolved_yaml);
  learner.Run();
  return 0;
}

int Main(int argc, char** argv) {
  return training::RunProgram(
      argc, argv,
      {.name = "lockstep", .about = "Trains in one process, in a fixed order."},
      [](const config::Loaded<TrainingConfig>& loaded) {
        return Run(loaded.config, loaded.resolved_yaml);
      });
}

}  // namespace
}  // namespace replicant::fleet

int main(int argc, char** argv) { return replicant::fleet::Main(argc, argv); }
