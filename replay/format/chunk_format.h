#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace replicant::replay {

// Returns whether a step or an item may have this priority: finite and >= 0.
bool IsPriority(double priority);

// A chunk is a block of memory with a few successive steps of one episode.
// Writers send, the replay stores, and checkpoints hold chunks.
//
// Step t of an episode of T steps is (o_t, a_t, r_{t+1}, d_{t+1}) for t < T;
// the last observation o_T is added alone, in the chunk that ends the episode.
// A chunk of S steps thus holds S observations, or S + 1 if it ends the
// episode. An observation is a row of observation_bytes and, with pixels, the
// frame with the same index in the frame block (replay/format/frame_codec.h).
// Little-endian:
//
//   offset  size  field
//        0     4  magic "RSG1"
//        4     2  num_steps S
//        6     2  flags: 1 ends the episode, 2 holds priorities
//        8     8  episode: a number that the writer never uses twice
//       16     4  first_step: t of the first row
//       20     4  observation_bytes
//       24     4  action_bytes
//       28     4  frames_bytes; 0 without pixels
//       32   4 S  rewards r_{t+1}, f32
//        +   4 S  discounts d_{t+1}, f32: 1, or 0 where the episode terminated
//        +   4 S  priorities of the items that begin here, f32, if flagged
//        +        observations, S (+ 1 if it ends) rows
//        +        actions, S rows
//        +        frame block of as many frames as observations
inline constexpr int64_t kMaxChunkSteps = 255;
inline constexpr int64_t kMaxRowBytes = int64_t{1} << 20;

// The sizes of every step in one service.
struct StepShape {
  int64_t observation_bytes = 0;
  int64_t action_bytes = 0;
  int64_t frame_bytes = 0;  // 0: no pixels

  bool operator==(const StepShape&) const = default;
};

// Fills one chunk.
//
// Thread-safety: one thread at a time.
class ChunkBuilder {
 public:
  // Throws InvalidArgument for a row of more than kMaxRowBytes.
  ChunkBuilder(const StepShape& shape, uint64_t episode, int64_t first_step);

  // Adds (o_t, a_t, r_{t+1}, d_{t+1}) for the next t. Throws InvalidArgument,
  // adding nothing, if a row has the wrong length, a number is out of its range
  // (see ChunkView), the chunk is full or has ended, or only some of its
  // steps have a priority.
  void AddStep(std::span<const std::byte> observation,
               std::span<const std::byte> action, float reward, float discount,
               std::optional<float> priority = std::nullopt);
  // Adds o_T: the chunk ends the episode. Throws like AddStep.
  void AddLastObservation(std::span<const std::byte> observation);

  int64_t num_steps() const { return static_cast<int64_t>(rewards_.size()); }
  bool has_priorities() const { return !priorities_.empty(); }

  // Returns the block. `frames` is the frame block of the same observations, or
  // empty. Throws InvalidArgument if nothing was added.
  std::vector<std::byte> Finish(std::span<const std::byte> frames) const;

 private:
  void AddObservation(std::span<const std::byte> observation);

  const StepShape shape_;
  const uint64_t episode_;
  const int64_t first_step_;
  bool ends_episode_ = false;
  std::vector<float> rewards_, discounts_, priorities_;
  std::vector<std::byte> observations_, actions_;
};

// The checked header of a chunk; borrows the block.
//
// Thread-safety: immutable.
class ChunkView {
 public:
  // Checks that `block`, whose contents may be arbitrary, is a chunk of
  // `shape` with a valid frame block, finite rewards, discounts in [0, 1] and
  // finite priorities >= 0. Throws IoError naming the fault.
  ChunkView(std::span<const std::byte> block, const StepShape& shape);

  uint64_t episode() const { return episode_; }
  int64_t first_step() const { return first_step_; }
  int64_t num_steps() const { return num_steps_; }
  bool ends_episode() const { return ends_episode_; }
  bool has_priorities() const { return has_priorities_; }
  int64_t num_observations() const {
    return num_steps_ + (ends_episode_ ? 1 : 0);
  }
  // One past the step of the last observation.
  int64_t end_observation() const { return first_step_ + num_observations(); }

  // Values of row i, counted from first_step. Preconditions: i < num_steps(),
  // for Observation() i < num_observations() (checked).
  float reward(int64_t i) const { return Float(0, i); }
  float discount(int64_t i) const { return Float(1, i); }
  // Precondition: has_priorities().
  float priority(int64_t i) const { return Float(2, i); }
  std::span<const std::byte> Observation(int64_t i) const;
  std::span<const std::byte> Action(int64_t i) const;
  // Whether the rows of observations and actions, taken as f32, hold finite
  // numbers only. One pass over them.
  bool HasFiniteRows() const;
  // The block of the frame block; empty without pixels.
  std::span<const std::byte> frames() const;
  std::span<const std::byte> block() const { return block_; }

 private:
  float Float(int64_t column, int64_t i) const;
  void CheckNumbers() const;

  std::span<const std::byte> block_;
  StepShape shape_;
  uint64_t episode_ = 0;
  int64_t first_step_ = 0;
  int64_t num_steps_ = 0;
  bool ends_episode_ = false;
  bool has_priorities_ = false;
  // offset of the observations in the block
  size_t observations_begin_ = 0;
};

}  // namespace replicant::replay
