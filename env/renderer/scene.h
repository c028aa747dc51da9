#pragma once

#include <mujoco/mujoco.h>

#include <cstdint>
#include <span>

#include "base/error.h"

namespace replicant::env {

// The renderer cannot draw a part of the scene, which the message names.
class UnsupportedScene : public Error {
 public:
  using Error::Error;
};

// MuJoCo's abstract picture of a state: geoms, lights and camera, filled
// in by mjv_updateScene with dm_control's options. Both renderers draw
// it.
//
// Thread-safety: one thread at a time.
class Scene {
 public:
  explicit Scene(const mjModel& model);
  ~Scene();
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  // Fills the scene from `data`, seen by `camera` (-1: the free camera).
  // Throws InvalidArgument if `camera` does not exist. The result is valid
  // until the next call; it is not const because mjr_render changes the scene
  // it draws.
  mjvScene& Update(const mjModel& model, mjData& data, int camera);

  // What the scene shows; for the next Update().
  mjvOption& option() { return option_; }

 private:
  // Makes room for twice as many geoms.
  void MakeLarger(const mjModel& model);

  mjvScene scene_;
  mjvOption option_;
  mjvPerturb perturb_;
  mjvCamera camera_;
};

// Throws InvalidArgument unless both sides are in [1, 4096].
void CheckImageSize(int height, int width);

// Throws InvalidArgument unless `rgb` can hold a picture [height, width, 3]
// and both sides are in [1, 4096].
void CheckImage(int height, int width, std::span<const uint8_t> rgb);

}  // namespace replicant::env
