#pragma once

#include <array>

#include "base/config/reader.h"
#include "base/rng.h"
#include "env/camera.h"
#include "env/physics.h"

namespace replicant::env {

// Section `task.distractions.camera`: a camera that moves at random, within
// limits, on a sphere about the agent. Angles are in radians, from the camera's
// own place; distances are shares of its own distance.
//
// The camera distraction of the Distracting Control Suite (arXiv:2101.02722,
// section 3.3).
struct CameraWalkConfig {
  double horizontal = 0.0, vertical = 0.0, roll = 0.0;  // largest angles
  double zoom_in = 0.0, zoom_out = 0.0;  // nearer and farther by such a share
  // Of the camera, in lengths of the model per step of the agent where the
  // camera is 4 lengths away, and in proportion elsewhere; 0: each episode has
  // one place.
  double max_velocity = 0.0, velocity_deviation = 0.0;
  // Of the roll, in radians per step of the agent.
  double max_roll_velocity = 0.0, roll_velocity_deviation = 0.0;
  // Whether the camera stays above the ground and on its side of the agent, the
  // half plane around the axis (x, y, -x or -y) that is nearest to its place.
  bool upper_quadrant = true;

  bool IsAny() const;
  static CameraWalkConfig Read(config::Reader& reader);
};

// The random walk of one camera.
//
// Place, in spherical coordinates about the agent's centre of mass (or the
// world's origin, for a camera that does not follow the agent), and roll are
// drawn uniformly within the limits at the start of an episode. Each step adds
// normal numbers to the velocity, cuts it to its maximum, moves the camera, and
// moves it back into the limits. The camera looks at the point that it looked
// at before, at the agent's distance.
//
// Differs from the suite's program (distracting_control/camera.py): a camera's
// own place is always within its limits, the side of the agent is its own and
// not always that of -y, and angles do not jump at -pi and pi; steps are steps
// of the agent, not of control.
//
// Thread-safety: one thread at a time.
class CameraWalk {
 public:
  // Throws InvalidArgument for the free camera, and for one that is fixed to a
  // moving body.
  CameraWalk(const CameraWalkConfig& config, const Physics& physics,
             int camera);

  // Draws a place for the episode that begins in the present state.
  void Begin(const Physics& physics, const RandomStream& random);
  void Step();
  // In the present state.
  CameraPose Pose(const Physics& physics) const;

 private:
  // Distance, angle in the x-y plane from x, and angle from z.
  struct Place {
    double radius = 0.0, horizontal = 0.0, vertical = 0.0;
  };
  struct Limits {
    double low = 0.0, high = 0.0;
  };

  static Place PlaceOf(const Vec3& v);
  static Vec3 VectorOf(const Place& place);
  Vec3 Centre(const Physics& physics) const;
  // What the camera of the model looks at.
  Vec3 Target(const Physics& physics) const;

  const CameraWalkConfig config_;
  const int camera_;
  const bool follows_agent_;
  RandomStream random_;

  // of the episode
  double velocity_scale_ = 1.0;
  double middle_ = 0.0;  // horizontal angle of the camera's own place
  Limits radius_, horizontal_, vertical_;
  Vec3 first_target_{};
  Place place_;
  double roll_ = 0.0, roll_velocity_ = 0.0;
  Vec3 velocity_{};
};

}  // namespace replicant::env
