#include "env/camera_walk.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace replicant::env {
namespace {

constexpr double kPi = std::numbers::pi;
// Distance of the suite's cameras, which its velocities are meant for.
constexpr double kUsualRadius = 4.0;

using Matrix = std::array<double, 9>;  // row-major

Vec3 Plus(const Vec3& a, const Vec3& b) {
  return {a[0] + b[0], a[1] + b[1], a[2] + b[2]};
}

Matrix Product(const Matrix& a, const Matrix& b) {
  Matrix c{};
  mju_mulMatMat(c.data(), a.data(), b.data(), 3, 3, 3);
  return c;
}

// Camera to world, for a look along `d` without a roll: pitch about x from a
// look along -z, then yaw about z.
Matrix LookWithoutRoll(const Vec3& d) {
  const double yaw = -std::atan2(d[0], d[1]);
  const double pitch = std::atan2(d[2], std::hypot(d[0], d[1])) + kPi / 2;
  const double cp = std::cos(pitch), sp = std::sin(pitch);
  const double cy = std::cos(yaw), sy = std::sin(yaw);
  return {cy, -sy * cp, sy * sp, sy, cy * cp, -cy * sp, 0.0, sp, cp};
}

// The shortest rotation from a look along -z to one along `d`, which has no
// jump at the pole.
Matrix LookShortest(const Vec3& d) {
  const double norm = Norm(d);
  // the axis of rotation is -z x d, its length the sine
  const Vec3 axis = {d[1] / norm, -d[0] / norm, 0.0};
  const double sine = Norm(axis), cosine = -d[2] / norm;
  if (sine < 1e-12) {
    const double sign = std::copysign(1.0, cosine);
    return {1.0, 0.0, 0.0, 0.0, sign, 0.0, 0.0, 0.0, sign};
  }
  std::array<double, 4> quaternion;
  const Vec3 unit = {axis[0] / sine, axis[1] / sine, 0.0};
  mju_axisAngle2Quat(quaternion.data(), unit.data(), std::atan2(sine, cosine));
  Matrix rotation;
  mju_quat2Mat(rotation.data(), quaternion.data());
  return rotation;
}

Matrix RollBy(double angle) {
  const double c = std::cos(angle), s = std::sin(angle);
  return {c, -s, 0.0, s, c, 0.0, 0.0, 0.0, 1.0};
}

// Centre of mass of the first body and those attached to it, in the world.
Span3 CentreOfAgent(const Physics& physics) {
  const auto body = std::min<int64_t>(1, physics.model().nbody - 1);
  return Span3(physics.data().subtree_com + 3 * body, 3);
}

// Whether the camera's pose depends on the agent's; throws for one whose walk
// would be about nothing.
bool FollowsAgent(const Physics& physics, int camera) {
  const mjModel& model = physics.model();
  if (camera < 0) {
    throw InvalidArgument(fmt::format(
        "{}: task.distractions.camera: the free camera does not move; allowed: "
        "a camera of the model",
        physics.name()));
  }
  if (model.cam_mode[camera] != mjCAMLIGHT_FIXED) return true;
  const int body = model.cam_bodyid[camera];
  if (model.body_weldid[body] != 0) {
    const char* name = mj_id2name(&model, mjOBJ_CAMERA, camera);
    throw InvalidArgument(fmt::format(
        "{}: task.distractions.camera: camera {} {} is fixed to a body that "
        "moves; allowed: cameras of the world, and those that track a body",
        physics.name(), camera, name == nullptr ? "" : name));
  }
  return false;
}

}  // namespace

bool CameraWalkConfig::IsAny() const {
  return horizontal > 0.0 || vertical > 0.0 || roll > 0.0 || zoom_in > 0.0 ||
         zoom_out > 0.0;
}

CameraWalkConfig CameraWalkConfig::Read(config::Reader& reader) {
  CameraWalkConfig c;
  reader.Field("horizontal", &c.horizontal, {0.0, kPi},
               "largest angle about the vertical, in radians");
  reader.Field("vertical", &c.vertical, {0.0, kPi},
               "largest angle up and down, in radians");
  reader.Field("roll", &c.roll, {0.0, kPi},
               "largest angle about the direction of the look, in radians");
  reader.Field("zoom_in", &c.zoom_in, {0.0, 0.99},
               "share of its distance by which the camera comes nearer");
  reader.Field("zoom_out", &c.zoom_out, {0.0, 100.0},
               "share of its distance by which it goes farther away");
  reader.Field("max_velocity", &c.max_velocity, {0.0, 1e6},
               "largest way of the camera in a step of the agent, in lengths "
               "of the model for a camera 4 lengths away");
  reader.Field("velocity_deviation", &c.velocity_deviation, {0.0, 1e6},
               "standard deviation of a step's change of velocity, in each "
               "direction");
  reader.Field("max_roll_velocity", &c.max_roll_velocity, {0.0, kPi},
               "largest change of the roll in a step of the agent, in radians");
  reader.Field("roll_velocity_deviation", &c.roll_velocity_deviation,
               {0.0, kPi},
               "standard deviation of a step's change of that velocity");
  reader.Field("upper_quadrant", &c.upper_quadrant,
               "whether the camera stays above the ground and on its side of "
               "the agent; false for a camera that looks straight down");
  return c;
}

CameraWalk::CameraWalk(const CameraWalkConfig& config, const Physics& physics,
                       int camera)
    : config_(config),
      camera_(camera),
      follows_agent_(FollowsAgent(physics, camera)),
      random_(0, "unused") {}

CameraWalk::Place CameraWalk::PlaceOf(const Vec3& v) {
  return {.radius = Norm(v),
          .horizontal = std::atan2(v[1], v[0]),
          .vertical = std::atan2(std::hypot(v[0], v[1]), v[2])};
}

Vec3 CameraWalk::VectorOf(const Place& place) {
  const double level = place.radius * std::sin(place.vertical);
  return {level * std::cos(place.horizontal),
          level * std::sin(place.horizontal),
          place.radius * std::cos(place.vertical)};
}

Vec3 CameraWalk::Centre(const Physics& physics) const {
  if (!follows_agent_) return {};
  const Span3 agent = CentreOfAgent(physics);
  return {agent[0], agent[1], agent[2]};
}

Vec3 CameraWalk::Target(const Physics& physics) const {
  const mjData& data = physics.data();
  const Span3 position(data.cam_xpos + 3 * camera_, 3);
  const double* rotation = data.cam_xmat + 9 * camera_;
  const double distance = Norm(Minus(position, CentreOfAgent(physics)));
  // along -z, the third column
  return {position[0] - distance * rotation[2],
          position[1] - distance * rotation[5],
          position[2] - distance * rotation[8]};
}

void CameraWalk::Begin(const Physics& physics, const RandomStream& random) {
  random_ = random;
  first_target_ = Target(physics);
  const Vec3 centre = Centre(physics);
  const Place own = PlaceOf(
      Minus(Span3(physics.data().cam_xpos + 3 * camera_, 3), Span3(centre)));
  velocity_scale_ = own.radius / kUsualRadius;
  middle_ = own.horizontal;
  radius_ = {.low = own.radius * (1.0 - config_.zoom_in),
             .high = own.radius * (1.0 + config_.zoom_out)};
  horizontal_ = {.low = own.horizontal - config_.horizontal,
                 .high = own.horizontal + config_.horizontal};
  vertical_ = {.low = own.vertical - config_.vertical,
               .high = own.vertical + config_.vertical};
  if (config_.upper_quadrant) {
    const auto narrow = [](double place, double low, double high, Limits* l) {
      l->low = std::min(place, std::max(l->low, low));
      l->high = std::max(place, std::min(l->high, high));
    };
    narrow(own.vertical, 0.0, kPi / 2, &vertical_);
    // the half plane around the nearest of the axes x, y, -x and -y
    const double axis = std::round(own.horizontal / (kPi / 2)) * (kPi / 2);
    narrow(own.horizontal, axis - kPi / 2, axis + kPi / 2, &horizontal_);
  }
  place_.horizontal = random_.Uniform(horizontal_.low, horizontal_.high);
  place_.vertical = random_.Uniform(vertical_.low, vertical_.high);
  place_.radius = random_.Uniform(radius_.low, radius_.high);
  roll_ = random_.Uniform(-config_.roll, config_.roll);
  for (double& v : velocity_) v = random_.Normal();
  const double speed =
      random_.Uniform(0.0, config_.max_velocity) / Norm(velocity_);
  for (double& v : velocity_) v *= speed;
  roll_velocity_ =
      random_.Uniform(-config_.max_roll_velocity, config_.max_roll_velocity);
  Step();
}

void CameraWalk::Step() {
  for (double& v : velocity_) {
    v += random_.Normal() * config_.velocity_deviation * velocity_scale_;
  }
  const double max_speed = config_.max_velocity * velocity_scale_;
  if (const double speed = Norm(velocity_); speed > max_speed) {
    for (double& v : velocity_) v *= max_speed / speed;
  }
  roll_velocity_ += random_.Normal() * config_.roll_velocity_deviation;
  roll_velocity_ = std::clamp(roll_velocity_, -config_.max_roll_velocity,
                              config_.max_roll_velocity);

  // the limits take away what of the velocity leads beyond them
  const Vec3 before = VectorOf(place_);
  Place next = PlaceOf(Plus(before, velocity_));
  next.horizontal =
      middle_ + std::remainder(next.horizontal - middle_, 2 * kPi);
  place_ = {
      .radius = std::clamp(next.radius, radius_.low, radius_.high),
      .horizontal =
          std::clamp(next.horizontal, horizontal_.low, horizontal_.high),
      .vertical = std::clamp(next.vertical, vertical_.low, vertical_.high)};
  velocity_ = Minus(Span3(VectorOf(place_)), Span3(before));
  const double roll =
      std::clamp(roll_ + roll_velocity_, -config_.roll, config_.roll);
  roll_velocity_ = roll - roll_;
  roll_ = roll;
}

CameraPose CameraWalk::Pose(const Physics& physics) const {
  CameraPose pose;
  pose.position = Plus(VectorOf(place_), Centre(physics));
  const Vec3 target = follows_agent_ ? Target(physics) : first_target_;
  const Vec3 look = Minus(Span3(target), Span3(pose.position));
  // nothing to look at: the camera stands in its target
  if (Norm(look) == 0.0) {
    std::copy_n(physics.data().cam_xmat + 9 * camera_, 9, pose.rotation.data());
    return pose;
  }
  pose.rotation = Product(
      config_.upper_quadrant ? LookWithoutRoll(look) : LookShortest(look),
      RollBy(roll_));
  return pose;
}

}  // namespace replicant::env
