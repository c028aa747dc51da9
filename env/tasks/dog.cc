#include "env/tasks/dog.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string>

#include "base/error.h"
#include "env/model_edit.h"
#include "env/randomizers.h"
#include "env/rewards.h"

namespace replicant::env {
namespace {

constexpr double kPi = std::numbers::pi;
constexpr double kTimeLimit = 15.0;  // s
constexpr double kWalkSpeed = 1.0;   // m/s
constexpr double kTrotSpeed = 3.0;   // m/s
constexpr double kRunSpeed = 9.0;    // m/s
// A part is upright up to this angle from vertical, in degrees.
constexpr double kMaxUprightAngle = 30.0;
// The dog stands above this share of its default height.
constexpr double kStandHeightFraction = 0.9;

class Stand : public Task {
 public:
  void Bind(Physics& physics, RandomStream& /*random*/) override {
    const mjModel& model = physics.model();
    if (model.nu != model.na) {
      throw InvalidArgument(
          fmt::format("{}: the model has {} actuators and {} activations; each "
                      "actuator needs one activation",
                      physics.name(), model.nu, model.na));
    }
    skull_ = physics.BodyId("skull");
    torso_ = physics.BodyId("torso");
    pelvis_ = physics.BodyId("pelvis");
    root_ = physics.QposAddress("root", /*size=*/7);
    for (int joint = 0; joint < model.njnt; ++joint) {
      if (model.jnt_type[joint] == mjJNT_HINGE) hinges_.push_back(joint);
    }
    com_velocity_ = physics.SensorAddress("torso_linvel", /*size=*/3);
    inertial_ = Addresses(physics, {"accelerometer", "velocimeter", "gyro"},
                          /*size=*/3);
    forces_ = Addresses(physics, {"foot_L", "foot_R", "hand_L", "hand_R"},
                        /*size=*/3);
    touches_ = Addresses(physics, {"palm_L", "palm_R", "sole_L", "sole_R"},
                         /*size=*/1);
    MeasureHeights(physics);
  }

  void InitializeEpisode(Physics& physics, RandomStream& random) override {
    MeasureHeights(physics);
    mjData& data = physics.mutable_data();
    const auto quaternion = AzimuthQuaternion(random.Uniform(0.0, 2 * kPi));
    std::copy(quaternion.begin(), quaternion.end(), data.qpos + root_ + 3);
    // the root's velocity along x and y, and around z
    for (const int dof : {0, 1, 5}) data.qvel[dof] = 2.0 * random.Normal();
    const mjModel& model = physics.model();
    for (int i = 0; i < model.nu; ++i) {
      data.act[i] = random.Uniform(model.actuator_ctrlrange[2 * i],
                                   model.actuator_ctrlrange[2 * i + 1]);
    }
  }

  void Observe(const Physics& physics,
               ObservationWriter& writer) const override {
    const mjModel& model = physics.model();
    const mjData& data = physics.data();
    writer.Begin("joint_angles");
    for (const int j : hinges_) writer.Append(data.qpos[model.jnt_qposadr[j]]);
    // the suite's spelling
    writer.Begin("joint_velocites");
    for (const int j : hinges_) writer.Append(data.qvel[model.jnt_dofadr[j]]);
    writer.Begin("torso_pelvis_height");
    writer.Append(physics.BodyPosition(torso_)[2]);
    writer.Append(physics.BodyPosition(pelvis_)[2]);
    writer.Begin("z_projection");
    for (const int body : {skull_, torso_, pelvis_}) {
      writer.Append(physics.BodyMatrix(body).subspan(kZX, 3));
    }
    writer.Array("torso_com_velocity", TorsoComVelocity(physics));
    const auto append_vectors = [&](const std::vector<int>& addresses) {
      for (const int address : addresses) {
        writer.Append(physics.Sensor(address, 3));
      }
    };
    writer.Begin("inertial_sensors");
    append_vectors(inertial_);
    writer.Begin("foot_forces");
    append_vectors(forces_);
    writer.Begin("touch_sensors");
    for (const int address : touches_) writer.Append(data.sensordata[address]);
    writer.Array("actuator_state", physics.act());
  }

  double Reward(const Physics& physics) const override {
    const double standing = HeightReward(physics, torso_, torso_height_) *
                            HeightReward(physics, pelvis_, pelvis_height_);
    static const double min_cosine = std::cos(kMaxUprightAngle * kPi / 180.0);
    double upright = 1.0;
    for (const int body : {skull_, torso_, pelvis_}) {
      upright *=
          Tolerance(physics.BodyMatrix(body)[kZZ], {.lower = min_cosine,
                                                    .upper = kInfinity,
                                                    .margin = min_cosine + 1.0,
                                                    .sigmoid = Sigmoid::kLinear,
                                                    .value_at_margin = 0.0});
    }
    // forces on the feet, up to the weight of the body
    double force = 0.0;
    for (const int address : touches_) {
      force += physics.data().sensordata[address];
    }
    const mjModel& model = physics.model();
    const double weight =
        -model.opt.gravity[2] * model.body_subtreemass[torso_];
    const double touch = Tolerance(force, {.lower = weight,
                                           .upper = kInfinity,
                                           .margin = weight,
                                           .sigmoid = Sigmoid::kLinear,
                                           .value_at_margin = 0.9});
    return standing * upright * touch;
  }

 protected:
  // Velocity of the centre of mass in the frame of the torso.
  Vec3 TorsoComVelocity(const Physics& physics) const {
    return ToFrame(Span3(physics.data().sensordata + com_velocity_, 3),
                   physics.BodyMatrix(torso_));
  }

 private:
  static std::vector<int> Addresses(const Physics& physics,
                                    const std::vector<std::string>& sensors,
                                    int size) {
    std::vector<int> addresses;
    addresses.reserve(sensors.size());
    for (const std::string& name : sensors) {
      addresses.push_back(physics.SensorAddress(name, size));
    }
    return addresses;
  }

  // Of the default pose, which a randomization of the model may change.
  void MeasureHeights(const Physics& physics) {
    torso_height_ = kStandHeightFraction * physics.BodyPosition(torso_)[2];
    pelvis_height_ = kStandHeightFraction * physics.BodyPosition(pelvis_)[2];
  }

  static double HeightReward(const Physics& physics, int body, double height) {
    return Tolerance(physics.BodyPosition(body)[2],
                     {.lower = height, .upper = kInfinity, .margin = height});
  }

  int skull_ = 0, torso_ = 0, pelvis_ = 0;
  int root_ = 0;
  std::vector<int> hinges_;
  int com_velocity_ = 0;
  std::vector<int> inertial_, forces_, touches_;
  double torso_height_ = 0.0, pelvis_height_ = 0.0;  // m
};

class Move : public Stand {
 public:
  // `speed` in m/s.
  explicit Move(double speed) : speed_(speed) {}

  double Reward(const Physics& physics) const override {
    const double forward = Tolerance(TorsoComVelocity(physics)[0],
                                     {.lower = speed_,
                                      .upper = 2 * speed_,
                                      .margin = std::max(1.0, speed_),
                                      .sigmoid = Sigmoid::kLinear,
                                      .value_at_margin = 0.0});
    return Stand::Reward(physics) * (4.0 * forward + 1.0) / 5.0;
  }

 private:
  double speed_;
};

class Fetch : public Stand {
 public:
  void Bind(Physics& physics, RandomStream& random) override {
    Stand::Bind(physics, random);
    head_ = physics.SiteId("head");
    upper_bite_ = physics.SiteId("upper_bite");
    lower_bite_ = physics.SiteId("lower_bite");
    ball_ = physics.GeomId("ball");
    target_ = physics.GeomId("target");
    floor_ = physics.GeomId("floor");
    ball_root_ = physics.QposAddress("ball_root", /*size=*/7);
    ball_dof_ = physics.DofAddress("ball_root");
  }

  void InitializeEpisode(Physics& physics, RandomStream& random) override {
    Stand::InitializeEpisode(physics, random);
    // the ball is thrown from the edge towards the centre
    const double radius = 0.75 * FloorSize(physics);
    const double azimuth = random.Uniform(0.0, 2 * kPi);
    double* position = physics.mutable_data().qpos + ball_root_;
    position[0] = radius * std::sin(azimuth);
    position[1] = radius * std::cos(azimuth);
    position[2] = 0.05;

    // the height that it will reach: m v^2 / 2 = m g h
    const double height = random.Uniform(0.0, 3.0);
    const double gravity = -physics.model().opt.gravity[2];
    const double speed = random.Uniform(0.0, 5.0);
    double* velocity = physics.mutable_data().qvel + ball_dof_;
    velocity[0] = speed * (-std::sin(azimuth) + 0.05 * random.Normal());
    velocity[1] = speed * (-std::cos(azimuth) + 0.05 * random.Normal());
    velocity[2] = std::sqrt(2.0 * gravity * height);
  }

  void Observe(const Physics& physics,
               ObservationWriter& writer) const override {
    Stand::Observe(physics, writer);
    const Span9 frame = physics.SiteMatrix(head_);
    const Span3 head = physics.SitePosition(head_);
    const Vec3 head_velocity = Velocity(physics, mjOBJ_SITE, head_);
    const Vec3 ball_velocity = Velocity(physics, mjOBJ_GEOM, ball_);
    writer.Begin("ball_state");
    writer.Append(ToFrame(Minus(physics.GeomPosition(ball_), head), frame));
    writer.Append(ToFrame(Minus(ball_velocity, head_velocity), frame));
    writer.Array("target_position",
                 ToFrame(Minus(physics.GeomPosition(target_), head), frame));
  }

  double Reward(const Physics& physics) const override {
    const mjModel& model = physics.model();
    const Span3 ball = physics.GeomPosition(ball_);
    const auto distance_to_bite = [&](int site) {
      return Norm(Minus(ball, physics.SitePosition(site)));
    };
    const double mouth_distance =
        0.5 * (distance_to_bite(upper_bite_) + distance_to_bite(lower_bite_));
    double reach =
        Tolerance(mouth_distance, {.upper = model.site_size[3 * upper_bite_],
                                   .margin = 2.0,
                                   .sigmoid = Sigmoid::kReciprocal});
    reach = (6.0 * reach + 1.0) / 7.0;

    const double target_radius = model.geom_size[3 * target_];
    const double target_distance =
        Norm(Minus(ball, physics.GeomPosition(target_)));
    const double near_target =
        Tolerance(target_distance, {.upper = target_radius,
                                    .margin = FloorSize(physics),
                                    .sigmoid = Sigmoid::kReciprocal});
    // a fetched ball may be let go
    if (target_distance < 2.0 * target_radius) reach = 1.0;
    return Stand::Reward(physics) * reach * (near_target + 1.0) / 2.0;
  }

 private:
  // Linear velocity in the world.
  static Vec3 Velocity(const Physics& physics, mjtObj type, int id) {
    // MuJoCo gives rotation first
    std::array<double, 6> velocity;
    mj_objectVelocity(&physics.model(), &physics.data(), type, id,
                      velocity.data(), /*flg_local=*/0);
    return {velocity[3], velocity[4], velocity[5]};
  }

  // Half the side of the floor.
  double FloorSize(const Physics& physics) const {
    return physics.model().geom_size[3 * floor_];
  }

  int head_ = 0, upper_bite_ = 0, lower_bite_ = 0;
  int ball_ = 0, target_ = 0, floor_ = 0;
  int ball_root_ = 0, ball_dof_ = 0;
};

void SetFloorSize(mjSpec& spec, double floor_size) {
  mjsGeom& floor = FindGeom(spec, "floor");
  floor.size[0] = floor.size[1] = floor_size;
  floor.size[2] = 0.1;
}

void RemoveBall(mjSpec& spec) {
  DeleteElement(spec, mjOBJ_BODY, "ball");
  DeleteElement(spec, mjOBJ_GEOM, "target");
  DeleteElement(spec, mjOBJ_CAMERA, "ball");
  DeleteElement(spec, mjOBJ_CAMERA, "head");
  for (const char* wall : {"wall_px", "wall_nx", "wall_py", "wall_ny"}) {
    DeleteElement(spec, mjOBJ_GEOM, wall);
  }
}

TaskDefinition Define(const char* name, double floor_size, bool has_ball,
                      std::function<std::unique_ptr<Task>()> make_task) {
  return {.name = name,
          .model = "dog.xml",
          .options = {.time_limit_s = kTimeLimit, .control_timestep_s = 0.015},
          .edit =
              [=](mjSpec& spec) {
                SetFloorSize(spec, floor_size);
                if (!has_ball) RemoveBall(spec);
              },
          .make_task = std::move(make_task)};
}

TaskDefinition DefineMove(const char* name, double speed) {
  return Define(name, /*floor_size=*/speed * kTimeLimit, /*has_ball=*/false,
                TaskMaker<Move>(speed));
}

}  // namespace

std::vector<TaskDefinition> DogTasks() {
  return {Define("dog-stand", /*floor_size=*/kWalkSpeed * kTimeLimit,
                 /*has_ball=*/false, TaskMaker<Stand>()),
          DefineMove("dog-walk", kWalkSpeed),
          DefineMove("dog-trot", kTrotSpeed), DefineMove("dog-run", kRunSpeed),
          Define("dog-fetch", /*floor_size=*/10.0, /*has_ball=*/true,
                 TaskMaker<Fetch>())};
}

}  // namespace replicant::env
