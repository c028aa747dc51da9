#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "env/camera.h"
#include "env/distractions.h"
#include "env/environment.h"
#include "env/frame_disturbances.h"
#include "env/wrappers.h"

namespace replicant::env {

struct PixelOptions {
  CameraOptions camera;
  // Several cameras in place of `camera`, in the order of their images; empty:
  // that one alone.
  std::vector<CameraOptions> cameras;
  // Frames in an observation.
  int frame_stack = 3;

  std::vector<CameraOptions> Cameras() const {
    return cameras.empty() ? std::vector{camera} : cameras;
  }
};

// Adds the arrays of the cameras to the spec of an environment, as Pixels does,
// without drawing anything. Throws InvalidArgument if the spec has pixels, or
// an array with the name of a camera's, and if a camera is given twice.
void AddPixels(const PixelOptions& options, ObservationSpec* spec);

// Adds camera frames to the observation: the array "pixels", uint8 [height,
// width, 3 * frame_stack], holds the last frames of the episode, oldest first.
// The first frame of an episode fills the stack.
//
// With several cameras each has an array, "pixels/CAMERA" with its name or
// number as given. The arrays lie one after the other in
// ObservationBuffer::pixels, and their newest frames in ObservationBuffer::
// frame.
//
// A frame is drawn only if the call has a buffer for pixels or for the newest
// frame; a step without one adds no frame to the stack. ActionRepeat may
// therefore be the inner or outer wrapper: only the last of the repeated steps
// is drawn.
//
// An environment that has images itself, arrays uint8 [H, W, C], gets stacks of
// them in their place, [H, W, C * frame_stack].
//
// After a divergence the frame shows the default pose.
//
// Source: dm_control.suite.wrappers.pixels, with the frame stack of the Atari
// agents (doi:10.1038/nature14236).
class Pixels : public EnvironmentWrapper {
 public:
  // Throws InvalidArgument if `frame_stack` < 1, and what AddPixels() and
  // Camera's constructor throw.
  Pixels(std::unique_ptr<Environment> environment, const PixelOptions& options);
  // As above, for another environment of the same model, before the first reset
  // of either. Both share the renderer's copies of the model's assets.
  Pixels(std::unique_ptr<Environment> environment, const Pixels& sibling);

  // Stacks the environment's own images. Throws InvalidArgument if it has none,
  // one is not [H, W, C] or `frame_stack` < 1.
  Pixels(std::unique_ptr<Environment> environment, int frame_stack);

  // Before the first reset: distracts the cameras, or disturbs the frames of
  // all views. Throw as the constructor of Distractions does; an environment
  // with own images has no cameras.
  void Distract(const DistractionConfig& config,
                std::shared_ptr<const Backgrounds> backgrounds,
                const RandomStream& random);
  void Disturb(const FrameDisturbanceConfig& config,
               const RandomStream& random);

  const ObservationSpec& observation_spec() const override { return spec_; }
  TimeStep Reset(const ObservationBuffer& out) override;
  TimeStep Step(std::span<const double> action,
                const ObservationBuffer& out) override;
  void Observe(const ObservationBuffer& out) override;

 private:
  // A camera, or an own image of the environment, with the stack of its frames.
  struct View {
    std::string array;
    std::optional<Camera> camera;
    FrameStack stack;
    std::optional<FrameDisturbances> disturbances;
  };
  // Age of the stacks relative to the current state.
  enum class Content {
    kOtherEpisode,  // no frame of this episode
    kOlder,         // frames of this episode, not of this state
    kPresent,       // the newest shows this state
  };
  // Writes the frames of the current state into the stacks.
  void Draw();
  // Records that `step` has led to a new state.
  void Follow(const TimeStep& step);
  // Draws the current state unless it is already drawn, and writes the parts of
  // the stacks that `out` has buffers for.
  void WritePixels(const ObservationBuffer& out);

  const PixelOptions options_;
  std::vector<View> views_;
  std::vector<uint8_t> own_frame_;  // of an environment with images
  std::optional<Distractions> distractions_;
  ObservationSpec spec_;
  Content content_ = Content::kOtherEpisode;
};

}  // namespace replicant::env
