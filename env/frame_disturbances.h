#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/config/reader.h"
#include "base/rng.h"
#include "env/failure.h"

namespace replicant::env {

// Section `task.disturbances.frames`: what separates the frames of a real
// camera from pictures. Times are frames, one for each step of the agent.
struct FrameDisturbanceConfig {
  // A frame arrives so many steps late; the first one is repeated.
  int delay = 0;
  // Standard deviation of noise added to each byte, in grey levels of 255.
  double gaussian = 0.0;
  // Frames that are lost: the newest one before is seen again.
  Failure dropped;

  bool IsAny() const;
  static FrameDisturbanceConfig Read(config::Reader& reader);
};

// Disturbs the frames of one camera, in this order: noise, loss, delay.
//
// Every draw of episode k comes from substream "episode-k", so that a resumed
// run that draws the same frames repeats it. Noise takes one draw for 256
// bytes: their noise is a stretch, from the drawn place on, of 65536 normal
// numbers that the constructor draws.
//
// Thread-safety: one thread at a time.
class FrameDisturbances {
 public:
  FrameDisturbances(const FrameDisturbanceConfig& config,
                    const RandomStream& random, size_t frame_size);

  void Begin(int64_t episode);
  // The episode's next frame in place of `frame`, [frame_size].
  void Apply(std::span<uint8_t> frame);

 private:
  void AddNoise(std::span<uint8_t> frame);

  const FrameDisturbanceConfig config_;
  const RandomStream stream_;
  RandomStream random_;         // of the episode
  std::vector<int16_t> noise_;  // in grey levels; empty without noise
  bool is_first_ = true;
  int dropped_left_ = 0;
  // the last delay + 1 frames, after noise and loss
  std::vector<std::vector<uint8_t>> line_;
  size_t newest_ = 0;
};

}  // namespace replicant::env
