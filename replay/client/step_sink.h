#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace replicant::replay {

// Step t of an episode: (o_t, a_t, r_{t+1}, d_{t+1}). Borrows its bytes during
// the call that takes it. The lengths follow the replay's StepShape.
struct Step {
  std::span<const std::byte> observation;  // o_t, observation_bytes
  std::span<const std::byte> frame;        // of o_t, frame_bytes
  std::span<const std::byte> action;       // a_t, action_bytes
  float reward = 0.0F;                     // r_{t+1}
  float discount = 1.0F;                   // d_{t+1}
  std::optional<float> priority;           // of the item that begins at t
};

// Takes the steps of one environment. StepWriter sends them to a replay
// service; LocalReplay::Writer inserts them into a replay of the same process.
//
// Thread-safety: one thread at a time.
class StepSink {
 public:
  virtual ~StepSink() = default;

  // Starts an episode; drops an unfinished one.
  virtual void BeginEpisode() = 0;
  // Adds the next step of the episode. May wait. If the sink cannot take the
  // step, it drops the rest of the episode and counts the loss.
  // Throws InvalidArgument for a row of the wrong length.
  virtual void Append(const Step& step) = 0;
  // Ends the episode with the last observation o_T, which has no action.
  virtual void EndEpisode(std::span<const std::byte> observation,
                          std::span<const std::byte> frame) = 0;
};

}  // namespace replicant::replay
