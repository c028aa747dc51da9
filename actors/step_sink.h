#pragma once

#include <cstddef>
#include <span>

namespace replicant::actors {

// One step as an actor hands it over: (o_t, a_t, r_{t+1}, d_{t+1}).
struct ActorStep {
  std::span<const std::byte> observation;  // of o_t; empty with pixels
  std::span<const std::byte> frame;        // of o_t; empty without
  std::span<const std::byte> action;
  float reward = 0.0F;
  float discount = 1.0F;
};

// Where the steps of one environment go: a replay service, or a table in the
// same process.
//
// Thread-safety: one thread at a time.
class StepSink {
 public:
  virtual ~StepSink() = default;

  // Starts an episode; one that was not ended is dropped.
  virtual void BeginEpisode() = 0;
  // May wait. A step that cannot be taken in costs the episode: what follows of
  // it is ignored, and counted by the sink.
  virtual void Append(const ActorStep& step) = 0;
  // o_T ends the episode.
  virtual void EndEpisode(std::span<const std::byte> observation,
                          std::span<const std::byte> frame) = 0;
};

}  // namespace replicant::actors
