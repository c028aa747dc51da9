#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "env/environment.h"

namespace replicant::env {

// Reduction of the rewards of repeated steps to one reward.
enum class RewardReduction { kMean, kSum };

// Checks the numbers of an environment where they enter the program: a reward
// or an element of the observation that is NaN, infinite or beyond the range of
// float32, or a discount outside [0, 1], ends the episode. The next step begins
// another one.
//
// Reset(), Step() and Observe() throw InvalidArgument for such a number, with
// its place:
//
//   "cheetah-run: environment 3, episode 12, step 49: observation 'velocity'[2]
//    is nan; want finite numbers of float32"
//
// Numbers that nobody asked for (an empty buffer) are not checked.
class NumberCheck : public EnvironmentWrapper {
 public:
  // `name` and `index` are the environment's, for messages.
  NumberCheck(std::unique_ptr<Environment> environment, std::string name,
              int64_t index);

  TimeStep Reset(const ObservationBuffer& out) override;
  TimeStep Step(std::span<const double> action,
                const ObservationBuffer& out) override;
  void SeekEpisode(int64_t episode) override;
  void Observe(const ObservationBuffer& out) override;

 private:
  TimeStep Checked(const TimeStep& step, const ObservationBuffer& out);
  void CheckObservation(const ObservationBuffer& out);
  // Ends the episode and throws.
  [[noreturn]] void Refuse(const std::string& what, const std::string& wanted);

  const std::string name_;
  const int64_t index_;
  int64_t next_episode_ = 0;
  int64_t step_ = 0;  // of the episode before that one
};

// Repeats every action for several control steps and observes (and renders)
// only the last of them. The end of an episode ends the repetition.
//
// The agent step's discount is the product of the control steps' discounts
// d_1 ... d_k, and its reward R = r_1 + d_1 r_2 + d_1 d_2 r_3 + ..., or R / k
// for the mean; k is the number of steps made. All discounts but the last are 1
// in most environments, and R is then the sum of the rewards.
class ActionRepeat : public EnvironmentWrapper {
 public:
  // Throws InvalidArgument unless `count` >= 1.
  ActionRepeat(std::unique_ptr<Environment> environment, int count,
               RewardReduction reduction);

  TimeStep Step(std::span<const double> action,
                const ObservationBuffer& out) override;
  double control_timestep_s() const override {
    return inner().control_timestep_s() * count_;
  }

 private:
  int count_;
  RewardReduction reduction_;
};

// Cuts episodes off after a number of steps, with discount 1.
class StepLimit : public EnvironmentWrapper {
 public:
  // Throws InvalidArgument unless `max_steps` >= 1.
  StepLimit(std::unique_ptr<Environment> environment, int64_t max_steps);

  TimeStep Reset(const ObservationBuffer& out) override;
  TimeStep Step(std::span<const double> action,
                const ObservationBuffer& out) override;
  void SeekEpisode(int64_t episode) override {
    EnvironmentWrapper::SeekEpisode(episode);
    is_episode_over_ = true;
  }

 private:
  int64_t max_steps_;
  int64_t step_ = 0;
  bool is_episode_over_ = true;
};

// The last `depth` frames of an episode as one image with the channels of all
// frames, oldest first, for the network.
//
//   frame   [pixels, channels]
//   stack   [pixels, depth * channels]
//
// The first frame of an episode fills the stack. No allocation after the
// constructor. Thread-safety: one thread at a time.
class FrameStack {
 public:
  // Throws InvalidArgument unless `pixels` and `channels` are >= 1 and `depth`
  // is in [1, 64].
  FrameStack(int64_t pixels, int64_t depth, int64_t channels = 3);

  size_t depth() const { return depth_; }
  // Buffer for the next frame; Push() or Fill() adds it.
  std::span<uint8_t> frame() { return frames_[next_]; }
  // Adds the frame as the newest and drops the oldest.
  void Push();
  // Fills the whole stack with the frame, at the start of an episode.
  void Fill();
  // The frame added last. There must be one (checked).
  std::span<const uint8_t> newest() const;
  // Writes the stack: pixels * depth * channels bytes. There must be a frame
  // (checked).
  void CopyTo(std::span<uint8_t> out) const;

 private:
  size_t frame_size_, depth_, pixel_bytes_;
  // a ring of depth + 1: the stack and the next frame
  std::vector<std::vector<uint8_t>> frames_;
  size_t next_ = 0;
  // frames of this episode in the ring, at most `depth`
  size_t count_ = 0;
};

}  // namespace replicant::env
