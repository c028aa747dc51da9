#pragma once

#include <array>
#include <vector>

#include "env/task.h"

namespace replicant::env {

// The arm with a hand of two fingers that manipulator and stacker share.
class PlanarArm {
 public:
  // `touches` are places in sensordata that are observed, in order. Throws
  // InvalidArgument if the model has no such arm.
  PlanarArm(const Physics& physics, std::vector<int> touches);

  // Draws every joint from its range, or from all angles without one, and sets
  // finger and thumb to the same angle.
  void DrawPose(Physics& physics, RandomStream& random) const;

  // arm_pos [8, 2] (sine and cosine of each joint), arm_vel [8],
  // touch [number of touches] (log(1 + force)), hand_pos [4].
  void Observe(const Physics& physics, ObservationWriter& writer) const;

 private:
  static constexpr size_t kNumJoints = 8;
  std::array<int, kNumJoints> joints_{};
  std::array<int, kNumJoints> qpos_{};
  std::array<int, kNumJoints> dofs_{};
  int finger_ = 0, thumb_ = 0;
  int hand_ = 0;
  std::vector<int> touches_;
};

// Appends x, z and the w and y of the quaternion: a body's pose in the plane.
void AppendPlanarPose(const Physics& physics, int body,
                      ObservationWriter& writer);

// Distance between two sites.
double SiteDistance(const Physics& physics, int site1, int site2);

}  // namespace replicant::env
