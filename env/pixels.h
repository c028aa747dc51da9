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

// Adds camera frames to the observation: the array "pixels", uint8 [height,
// width, 3 * frame_stack], holds the last frames of the episode, oldest first.
// The first frame of an episode fills the stack.
//
// A frame is drawn only if the call has a buffer for pixels or for the newest
// frame; a step without one adds no frame to the stack. ActionRepeat may
// therefore be the inner or outer wrapper: only the last of the repeated steps
// is drawn.
//
// After a divergence the frame shows the default pose.
//
// Source: dm_control.suite.wrappers.pixels, with the frame stack of the Atari
// agents (doi:10.1038/nature14236).
class Pixels : public EnvironmentWrapper {
 public:
  // Throws InvalidArgument if the environment already has pixels or
  // `frame_stack` < 1, and what Camera's constructor throws.
  Pixels(std::unique_ptr<Environment> environment, const PixelOptions& options);
  // As above, for another environment of the same model, before the first reset
  // of either. Both share the renderer's copies of the model's assets.
  Pixels(std::unique_ptr<Environment> environment, const Pixels& sibling);

  const ObservationSpec& observation_spec() const override { return spec_; }
  TimeStep Reset(const ObservationBuffer& out) override;
  TimeStep Step(std::span<const double> action,
                const ObservationBuffer& out) override;
  void Observe(const ObservationBuffer& out) override;

 private:
  // Age of the stack relative to the current state.
  enum class Content {
    kOtherEpisode,  // no frame of this episode
    kOlder,         // frames of this episode, not of this state
    kPresent,       // the newest shows this state
  };
  // Records that `step` has led to a new state.
  void Follow(const TimeStep& step);
  // Draws the current state unless it is already drawn, and writes the parts of
  // the stack that `out` has buffers for.
  void WritePixels(const ObservationBuffer& out);

  Camera camera_;
  int frame_stack_;
  FrameStack stack_;
  ObservationSpec spec_;
  Content content_ = Content::kOtherEpisode;
};

}  // namespace replicant::env
