#include "env/tasks/planar_arm.h"

#include <cmath>
#include <numbers>
#include <utility>

namespace replicant::env {
namespace {

constexpr std::array kArmJoints = {"arm_root",  "arm_shoulder", "arm_elbow",
                                   "arm_wrist", "finger",       "fingertip",
                                   "thumb",     "thumbtip"};

}  // namespace

PlanarArm::PlanarArm(const Physics& physics, std::vector<int> touches)
    : finger_(physics.QposAddress("finger")),
      thumb_(physics.QposAddress("thumb")),
      hand_(physics.BodyId("hand")),
      touches_(std::move(touches)) {
  for (size_t i = 0; i < kNumJoints; ++i) {
    joints_[i] = physics.JointId(kArmJoints[i]);
    qpos_[i] = physics.QposAddress(kArmJoints[i]);
    dofs_[i] = physics.DofAddress(kArmJoints[i]);
  }
}

void PlanarArm::DrawPose(Physics& physics, RandomStream& random) const {
  constexpr double kPi = std::numbers::pi;
  const mjModel& model = physics.model();
  double* qpos = physics.mutable_data().qpos;
  for (size_t i = 0; i < kNumJoints; ++i) {
    const int joint = joints_[i];
    const bool is_limited = model.jnt_limited[joint] != 0;
    const double lower = is_limited ? model.jnt_range[2 * joint] : -kPi;
    const double upper = is_limited ? model.jnt_range[2 * joint + 1] : kPi;
    qpos[qpos_[i]] = random.Uniform(lower, upper);
  }
  qpos[finger_] = qpos[thumb_];
}

void PlanarArm::Observe(const Physics& physics,
                        ObservationWriter& writer) const {
  const mjData& data = physics.data();
  writer.Begin("arm_pos", /*row_size=*/2);
  for (const int address : qpos_) {
    writer.Append(std::sin(data.qpos[address]));
    writer.Append(std::cos(data.qpos[address]));
  }
  writer.Begin("arm_vel");
  for (const int address : dofs_) writer.Append(data.qvel[address]);
  writer.Begin("touch");
  for (const int address : touches_) {
    writer.Append(std::log1p(data.sensordata[address]));
  }
  writer.Begin("hand_pos");
  AppendPlanarPose(physics, hand_, writer);
}

void AppendPlanarPose(const Physics& physics, int body,
                      ObservationWriter& writer) {
  const Span3 position = physics.BodyPosition(body);
  const double* quaternion = physics.data().xquat + 4 * body;
  writer.Append(position[0]);
  writer.Append(position[2]);
  writer.Append(quaternion[0]);
  writer.Append(quaternion[2]);
}

double SiteDistance(const Physics& physics, int site1, int site2) {
  return Norm(Minus(physics.SitePosition(site1), physics.SitePosition(site2)));
}

}  // namespace replicant::env
