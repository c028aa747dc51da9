#include "env/randomizers.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "base/error.h"

namespace replicant::env {
namespace {

constexpr double kPi = std::numbers::pi;

void Normalize(std::span<double> v) {
  const double norm = Norm(v);
  for (double& value : v) value /= norm;
}

void RandomLimitedQuaternion(RandomStream& random, double limit,
                             std::span<double, 4> quaternion) {
  Vec3 axis;
  RandomDirection(random, axis);
  mju_axisAngle2Quat(quaternion.data(), axis.data(), random.Uniform() * limit);
}

}  // namespace

void RandomDirection(RandomStream& random, std::span<double> v) {
  for (double& value : v) value = random.Normal();
  Normalize(v);
}

std::array<double, 4> AzimuthQuaternion(double angle) {
  return {std::cos(angle / 2), 0.0, 0.0, std::sin(angle / 2)};
}

void RandomizeJoints(Physics& physics, RandomStream& random) {
  const mjModel& model = physics.model();
  double* qpos = physics.mutable_data().qpos;
  for (int joint = 0; joint < model.njnt; ++joint) {
    double* position = qpos + model.jnt_qposadr[joint];
    const double lower = model.jnt_range[2 * joint];
    const double upper = model.jnt_range[2 * joint + 1];
    const bool is_limited = model.jnt_limited[joint] != 0;
    switch (model.jnt_type[joint]) {
      case mjJNT_HINGE:
        *position = is_limited ? random.Uniform(lower, upper)
                               : random.Uniform(-kPi, kPi);
        break;
      case mjJNT_SLIDE:
        if (is_limited) *position = random.Uniform(lower, upper);
        break;
      case mjJNT_BALL: {
        const std::span<double, 4> quaternion(position, 4);
        if (is_limited) {
          RandomLimitedQuaternion(random, upper, quaternion);
        } else {
          RandomDirection(random, quaternion);
        }
        break;
      }
      case mjJNT_FREE: {
        const std::span<double, 4> quaternion(position + 3, 4);
        for (double& value : quaternion) value = random.Uniform();
        Normalize(quaternion);
        break;
      }
      default:
        break;
    }
  }
}

void DrawUntilNoContact(Physics& physics, int max_attempts,
                        const std::function<void()>& draw) {
  for (int attempt = 0; attempt < max_attempts; ++attempt) {
    draw();
    // a state that overflows the contact buffer has contacts too
    const PhysicsStatus status = physics.ForwardWithoutActuation();
    if (status == PhysicsStatus::kOk && physics.data().ncon == 0) return;
  }
  throw Error(fmt::format("{}: no start without contacts in {} attempts",
                          physics.name(), max_attempts));
}

}  // namespace replicant::env
