#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "actors/policy.h"
#include "agents/exploration.h"
#include "agents/task_spec.h"
#include "base/rng.h"
#include "env/vector_environment.h"
#include "replay/client/step_sink.h"

namespace replicant::actors {

// A finished episode.
struct EpisodeResult {
  int64_t environment = 0;
  int64_t length = 0;         // agent steps
  double episode_return = 0;  // sum of the control steps' rewards
};

// The state of an actor. An actor with the same environments continues from it
// bit-exactly.
struct ActorState {
  struct Episode {
    int64_t number = 0;          // of its environment, from 0
    std::vector<float> actions;  // [T, A], all so far
  };
  std::vector<Episode> episodes;  // by environment
  int64_t num_steps = 0;
  int64_t num_calls = 0;
};

// Seconds that an actor has spent in each part.
struct ActorTimes {
  double policy_s = 0.0;
  double environments_s = 0.0;  // physics and rendering
  double sinks_s = 0.0;  // including compression and waits for the replay
};

struct ActorOptions {
  agents::ExplorationConfig exploration;
  // Global number of environment 0, and number of environments of all actors.
  int64_t first_environment = 0;
  int64_t num_all_environments = 1;
  uint64_t seed = 0;
  // First position of the random streams and episode numbers. A restarted actor
  // needs another position, or it would repeat itself.
  int64_t first_position = 0;
  // Whether to keep the actions of open episodes, for state().
  bool keeps_state = false;
  // Control steps after which an episode that goes on is reported, once for
  // each environment: it may have no end.
  int64_t long_episode_steps = std::numeric_limits<int64_t>::max();
  // Called at the end of every episode.
  std::function<void(const EpisodeResult&)> on_episode =
      [](const EpisodeResult&) {};
};

// Acts in E environments at once, with one inference for all of them, and
// passes each step to its environment's sink.
//
// Thread-safety: one thread makes all calls.
class Actor {
 public:
  // One sink per environment; all arguments outlive the actor. Starts an
  // episode in each environment.
  Actor(const agents::TaskSpec& task, env::VectorEnvironment* environments,
        Policy* policy, std::vector<replay::StepSink*> sinks,
        ActorOptions options);

  // Makes one step in every environment. After the end of an episode, the step
  // starts the next one.
  void Step();

  // Agent steps of this actor, except steps that only started an episode.
  int64_t num_steps() const { return num_steps_; }
  // Environments with an episode of more than long_episode_steps so far.
  int64_t num_endless() const { return num_endless_; }
  // The current noise scale, averaged over the environments.
  double NoiseScale() const;
  const ActorTimes& times() const { return times_; }
  // Agent steps of all actors, for the schedules of the exploration: the value
  // of SetGlobalSteps(), or an estimate from this actor's steps if that is
  // larger.
  int64_t num_all_steps() const;
  // Sets the number of steps of all actors, including ended processes.
  void SetGlobalSteps(int64_t num_steps) { num_global_steps_ = num_steps; }

  // Precondition: keeps_state (checked).
  ActorState state() const;
  // Repeats the episodes of `state` up to its step. The sinks receive all of
  // their steps again, from BeginEpisode() on, and must skip steps that they
  // already have. Throws InvalidArgument for a state of other environments.
  void Restore(const ActorState& state);

 private:
  // The observations of the environments after one step; [E, ...] each.
  struct Observed {
    std::vector<double> state;
    std::vector<float> values;  // the state as the agent takes it
    std::vector<uint8_t> pixels;
    std::vector<uint8_t> frames;  // the newest of each stack
    std::vector<env::TimeStep> steps;
  };

  int64_t size() const { return environments_.size(); }
  Observed MakeObserved() const;
  static env::BatchBuffer BufferOf(Observed& observed);
  // Converts the state written by the environments to `values`.
  static void Convert(Observed& observed);
  std::span<const std::byte> ObservationOf(const Observed& observed,
                                           int64_t index) const;
  std::span<const std::byte> FrameOf(const Observed& observed,
                                     int64_t index) const;
  double ScaleOf(int64_t environment, int64_t num_done) const;
  void ChooseActions();
  // Scales the action of environment `index` to the task's range.
  void ToTaskActions(int64_t index);
  // Repeats one step in the environments `ids`: the step `left` steps before
  // the current one.
  void Repeat(const ActorState& state, const std::vector<int>& ids,
              int64_t left);
  // Gives the sink of environment `index` its step between now_ and next_.
  void Emit(int64_t index);
  // Reports an episode that is too long.
  void NoteLength(int64_t index);

  const agents::TaskSpec task_;
  env::VectorEnvironment& environments_;
  Policy& policy_;
  const std::vector<replay::StepSink*> sinks_;
  const ActorOptions options_;
  RandomStream random_;

  Observed now_, next_;
  // [E, A], in [-1, 1] and in the task's range
  std::vector<float> actions_;
  std::vector<double> task_actions_;
  std::vector<EpisodeResult> episodes_;    // under way, by environment
  std::vector<ActorState::Episode> made_;  // the same, in the form of state()
  ActorTimes times_;
  std::vector<bool> is_endless_;  // by environment
  int64_t num_endless_ = 0;
  int64_t num_steps_ = 0;
  int64_t num_global_steps_ = 0;
  int64_t num_calls_ = 0;
  bool is_restoring_ = false;
};

}  // namespace replicant::actors
