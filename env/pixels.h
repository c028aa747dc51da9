#pragma once

#include <memory>
#include <span>

#include "env/camera.h"
#include "env/environment.h"
#include "env/wrappers.h"

namespace replicant::env {

struct PixelOptions {
  CameraOptions camera;
  // Frames in an observation.
  int frame_stack = 3;
};

// Adds what a camera sees to the observation: the array "pixels", uint8
// [height, width, 3 * frame_stack], the last frames of the episode with the
// oldest first. The first frame of an episode fills the stack.
//
// A frame is drawn where the caller gives a pixel buffer, and only there: a
// step without one leaves no frame in the stack. So ActionRepeat may lie
// inside or around, and only the last of the repeated steps is drawn.
//
// After a divergence the picture is that of the default pose.
//
// Source: dm_control.suite.wrappers.pixels, with the frame stack of the Atari
// agents (doi:10.1038/nature14236).
class Pixels : public EnvironmentWrapper {
 public:
  // Throws InvalidArgument if the environment has pixels already or
  // `frame_stack` < 1, and what Camera's constructor throws.
  Pixels(std::unique_ptr<Environment> environment, const PixelOptions& options);
  // The same for another environment of the same model, before any was reset:
  // the two share what a renderer keeps of it.
  Pixels(std::unique_ptr<Environment> environment, const Pixels& sibling);

  const ObservationSpec& observation_spec() const override { return spec_; }
  TimeStep Reset(const ObservationBuffer& out) override;
  TimeStep Step(std::span<const double> action,
                const ObservationBuffer& out) override;
  void Observe(const ObservationBuffer& out) override;

 private:
  // What the stack holds, against the present state.
  enum class Content {
    kOtherEpisode,  // nothing of this episode
    kOlder,         // frames of this episode, not of this state
    kPresent,       // the newest is of this state
  };
  // Takes note that `step` has led to a new state.
  void Follow(const TimeStep& step);
  void WritePixels(std::span<uint8_t> out);

  Camera camera_;
  int frame_stack_;
  FrameStack stack_;
  ObservationSpec spec_;
  Content content_ = Content::kOtherEpisode;
};

}  // namespace replicant::env
