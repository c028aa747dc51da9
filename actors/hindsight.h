#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/config/reader.h"
#include "base/rng.h"
#include "env/goal_reward.h"
#include "env/vector_environment.h"
#include "replay/client/step_sink.h"

// Hindsight experience replay (arXiv:1707.01495): steps that missed their goal
// are also written with goals that were achieved later, strategy "future".
//
// An actor's writer relabels, not the replay's sampler: the reward of another
// goal is a function of the environment (compute_reward), often in Python, and
// the actor is the process that has the environment and the infos of its steps.
// Replay, learner and n-step returns stay as they are. The price is memory for
// k copies of each step.
namespace replicant::actors {

// Section `actors.hindsight`.
struct HindsightConfig {
  int64_t goals = 0;  // k, relabelled copies of each step; 0: none

  static HindsightConfig Read(config::Reader& reader);
};

// Writes an environment's episodes, each followed by k relabelled copies.
//
// A copy is a chain of episodes that begin where the one before ends, at step
// t: f is drawn uniformly from t + 1 ... T, the goal is the one achieved at f,
// and the copy's episode goes from t to f, where it is cut off, or ends earlier
// where the step would have terminated. Within an episode all steps share the
// goal, as n-step returns need. Each step is in one episode of a copy, and
// given that f is later than a step, f is uniform over all steps later than it:
// the strategy "future" of arXiv:1707.01495, section 4.5.
//
// The draws depend on the seed, the environment and the episode's content
// alone, so that a resumed run repeats them.
class HindsightSink : public replay::StepSink {
 public:
  struct Options {
    int64_t goals = 4;  // k
    uint64_t seed = 0;
    int64_t environment = 0;  // global number
    // Where the desired goal stands among an observation's numbers.
    int64_t desired = 0;
  };

  // `reward` and `sink` outlive this object.
  HindsightSink(const Options& options, env::GoalReward* reward,
                replay::StepSink* sink)
      : options_(options), reward_(*reward), sink_(*sink) {}

  void BeginEpisode() override;
  void Append(const replay::Step& step) override;
  // Precondition: the environment has not begun another episode.
  void EndEpisode(std::span<const std::byte> observation,
                  std::span<const std::byte> frame) override;

  // Says whether the steps that follow are those of Actor::Restore(). The sink
  // has had the copies of an episode that ends there.
  void SetRepeating(bool is_repeating) { is_repeating_ = is_repeating; }

 private:
  // o_t with its frame.
  struct Seen {
    std::vector<float> numbers;
    std::vector<std::byte> frame;
  };

  void Keep(std::span<const std::byte> observation,
            std::span<const std::byte> frame);
  // o_t with another goal.
  std::vector<float> Relabelled(size_t t, std::span<const double> goal) const;
  void WriteCopies();
  // Writes the steps from `begin` on, for the goal achieved at `end`; returns
  // where the episode ended.
  size_t WriteSegment(size_t begin, size_t end);

  const Options options_;
  env::GoalReward& reward_;
  replay::StepSink& sink_;
  // of the episode: T + 1 observations and T actions
  std::vector<Seen> seen_;
  std::vector<std::vector<std::byte>> actions_;
  bool is_repeating_ = false;
};

// The sinks of an actor's environments, with hindsight around them if there is
// any.
class HindsightSinks {
 public:
  // `environments` and `sinks` (one for each) outlive this object. Throws
  // ConfigError, with the key, for environments without goals.
  HindsightSinks(const HindsightConfig& config, const std::string& task,
                 uint64_t seed, int64_t first_environment,
                 env::VectorEnvironment* environments,
                 std::vector<replay::StepSink*> sinks);

  const std::vector<replay::StepSink*>& sinks() const { return sinks_; }
  // HindsightSink::SetRepeating() of all.
  void SetRepeating(bool is_repeating);

 private:
  std::vector<std::unique_ptr<HindsightSink>> relabelling_;
  std::vector<replay::StepSink*> sinks_;
};

}  // namespace replicant::actors
