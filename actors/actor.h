#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "actors/policy_runner.h"
#include "actors/step_sink.h"
#include "agents/exploration.h"
#include "agents/task_spec.h"
#include "core/base/rng.h"
#include "env/vector_environment.h"

namespace replicant::actors {

// An episode that came to its end.
struct EpisodeResult {
  int64_t environment = 0;
  int64_t length = 0;         // agent steps
  double episode_return = 0;  // sum of the agent steps' rewards
};

struct ActorOptions {
  agents::ExplorationConfig exploration;
  // Global number of environment 0, and how many all actors have.
  int64_t first_environment = 0;
  int64_t num_all_environments = 1;
  uint64_t seed = 0;
  // Told of every episode.
  std::function<void(const EpisodeResult&)> on_episode =
      [](const EpisodeResult&) {};
};

// Acts in E environments at once, one inference for all, and hands every step
// on.
//
// Thread-safety: one thread makes all calls.
class Actor {
 public:
  // One sink per environment; all arguments outlive the actor. Starts an
  // episode in each environment.
  Actor(const agents::TaskSpec& task, env::VectorEnvironment* environments,
        PolicyRunner* policy, std::vector<StepSink*> sinks,
        ActorOptions options);

  // One step in every environment; in one whose episode was over the step
  // starts the next one.
  void Step();

  // Agent steps made here, those that only started an episode not counted.
  int64_t num_steps() const { return num_steps_; }
  // Estimate for all actors: this one's, times their environments over its own.
  int64_t num_all_steps() const;

 private:
  // What the environments showed after one step; [E, ...] each.
  struct Observed {
    std::vector<double> state;
    std::vector<float> observations;  // the state as the agent takes it
    std::vector<uint8_t> pixels;
    std::vector<uint8_t> frames;  // the newest of each stack
    std::vector<env::TimeStep> steps;
  };

  int64_t size() const { return environments_.size(); }
  Observed MakeObserved() const;
  static env::BatchBuffer BufferOf(Observed& observed);
  // Fills what follows from what the environments wrote.
  void Convert(Observed& observed) const;
  std::span<const std::byte> ObservationOf(const Observed& observed,
                                           int64_t index) const;
  std::span<const std::byte> FrameOf(const Observed& observed,
                                     int64_t index) const;
  void ChooseActions();
  // Hands on what environment `index` did between now_ and next_.
  void HandOn(int64_t index);

  const agents::TaskSpec task_;
  env::VectorEnvironment& environments_;
  PolicyRunner& policy_;
  const std::vector<StepSink*> sinks_;
  const ActorOptions options_;
  RandomStream random_;

  Observed now_, next_;
  // [E, A], in [-1, 1] and in the task's range
  std::vector<float> actions_;
  std::vector<double> task_actions_;
  std::vector<EpisodeResult> episodes_;  // under way, by environment
  int64_t num_steps_ = 0;
  int64_t num_calls_ = 0;
};

}  // namespace replicant::actors
