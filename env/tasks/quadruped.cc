#include "env/tasks/quadruped.h"

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
#include "env/tasks/spline_zoom.h"

namespace replicant::env {
namespace {

constexpr double kPi = std::numbers::pi;
constexpr double kTimeLimit = 20.0;  // s
constexpr double kWalkSpeed = 0.5;   // m/s
constexpr double kRunSpeed = 5.0;    // m/s
// Terrain: width of the bumps in m, and their minimum height as a share of the
// bowl's height.
constexpr double kBumpScale = 2.0;
constexpr double kMinBump = 0.15;
// Half the side of the floor under the terrain, in m.
constexpr double kEscapeFloorSize = 40.0;

double HorizontalDistance(Span3 a, Span3 b) {
  return std::hypot(a[0] - b[0], a[1] - b[1]);
}

// Base of all tasks: the common observations and the search for a start.
class Quadruped : public Task {
 public:
  void Bind(Physics& physics, RandomStream& /*random*/) override {
    torso_ = physics.BodyId("torso");
    workspace_ = physics.SiteId("workspace");
    root_ = physics.QposAddress("root", /*size=*/7);
    root_dof_ = physics.DofAddress("root");
    velocimeter_ = physics.SensorAddress("velocimeter", /*size=*/3);
    const mjModel& model = physics.model();
    for (int joint = 0; joint < model.njnt; ++joint) {
      if (model.jnt_type[joint] == mjJNT_HINGE) hinges_.push_back(joint);
    }
    imu_ = SensorsOfTypes(model, mjSENS_GYRO, mjSENS_ACCELEROMETER);
    force_torque_ = SensorsOfTypes(model, mjSENS_FORCE, mjSENS_TORQUE);
  }

  void Observe(const Physics& physics,
               ObservationWriter& writer) const override {
    const mjModel& model = physics.model();
    const mjData& data = physics.data();
    writer.Begin("egocentric_state");
    for (const int j : hinges_) writer.Append(data.qpos[model.jnt_qposadr[j]]);
    for (const int j : hinges_) writer.Append(data.qvel[model.jnt_dofadr[j]]);
    writer.Append(physics.act());
    writer.Array("torso_velocity", physics.Sensor(velocimeter_, 3));
    writer.Scalar("torso_upright", TorsoMatrix(physics)[kZZ]);
    writer.Begin("imu");
    for (const int address : imu_) writer.Append(data.sensordata[address]);
    writer.Begin("force_torque");
    for (const int address : force_torque_) {
      writer.Append(std::asinh(data.sensordata[address]));
    }
  }

 protected:
  // Addresses of all readings of sensors of two types, in the model's order.
  static std::vector<int> SensorsOfTypes(const mjModel& model, mjtSensor type1,
                                         mjtSensor type2) {
    std::vector<int> addresses;
    for (int i = 0; i < model.nsensor; ++i) {
      if (model.sensor_type[i] != type1 && model.sensor_type[i] != type2) {
        continue;
      }
      for (int j = 0; j < model.sensor_dim[i]; ++j) {
        addresses.push_back(model.sensor_adr[i] + j);
      }
    }
    return addresses;
  }

  Span3 TorsoPosition(const Physics& physics) const {
    return physics.BodyPosition(torso_);
  }
  Span9 TorsoMatrix(const Physics& physics) const {
    return physics.BodyMatrix(torso_);
  }

  // 1 with the torso less than the angle away from upright, 0 upside down.
  double UprightReward(const Physics& physics,
                       double max_angle_degrees = 0.0) const {
    const double bound = std::cos(max_angle_degrees * kPi / 180.0);
    return Tolerance(TorsoMatrix(physics)[kZZ], {.lower = bound,
                                                 .upper = kInfinity,
                                                 .margin = 1.0 + bound,
                                                 .sigmoid = Sigmoid::kLinear,
                                                 .value_at_margin = 0.0});
  }

  // Raises the robot in steps of 1 cm out of the floor until it touches
  // nothing, with everything else in its default pose.
  void PlaceAboveFloor(Physics& physics,
                       const std::array<double, 4>& quaternion, double x = 0.0,
                       double y = 0.0) const {
    constexpr int kMaxAttempts = 10'000;
    double z = 0.0;
    for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
      physics.Reset();
      double* root = physics.mutable_data().qpos + root_;
      root[0] = x;
      root[1] = y;
      root[2] = z;
      std::copy(quaternion.begin(), quaternion.end(), root + 3);
      // deep in the floor the contact buffer may overflow: keep rising
      (void)physics.ForwardWithoutActuation();
      if (physics.data().ncon == 0) return;
      z += 0.01;
    }
    throw Error(physics.name() + ": no height without contacts found");
  }

  // In any orientation, above the origin.
  void PlaceAnywhichWay(Physics& physics, RandomStream& random) const {
    std::array<double, 4> quaternion;
    RandomDirection(random, quaternion);
    PlaceAboveFloor(physics, quaternion);
  }

  int torso_ = 0, workspace_ = 0;
  int root_ = 0, root_dof_ = 0;
  int velocimeter_ = 0;

 private:
  std::vector<int> hinges_;
  std::vector<int> imu_;
  std::vector<int> force_torque_;
};

class Move : public Quadruped {
 public:
  // `speed` in m/s.
  explicit Move(double speed) : speed_(speed) {}

  void InitializeEpisode(Physics& physics, RandomStream& random) override {
    PlaceAnywhichWay(physics, random);
  }

  double Reward(const Physics& physics) const override {
    const double forward = physics.data().sensordata[velocimeter_];
    return UprightReward(physics) *
           Tolerance(forward, {.lower = speed_,
                               .upper = kInfinity,
                               .margin = speed_,
                               .sigmoid = Sigmoid::kLinear,
                               .value_at_margin = 0.5});
  }

 private:
  double speed_;
};

class Escape : public Quadruped {
 public:
  void Bind(Physics& physics, RandomStream& random) override {
    const mjModel& model = physics.model();
    if (model.nhfield == 0 || model.hfield_nrow[0] < 2 ||
        model.hfield_nrow[0] != model.hfield_ncol[0] ||
        model.hfield_size[0] < kBumpScale) {
      throw InvalidArgument(
          fmt::format("{}: the model's first height field must be square, with "
                      "a half side of at least {} m",
                      physics.name(), kBumpScale));
    }
    Quadruped::Bind(physics, random);
    rangefinders_ =
        SensorsOfTypes(physics.model(), mjSENS_RANGEFINDER, mjSENS_RANGEFINDER);
  }

  void InitializeEpisode(Physics& physics, RandomStream& random) override {
    DrawTerrain(physics, random);
    PlaceAnywhichWay(physics, random);
  }

  void Observe(const Physics& physics,
               ObservationWriter& writer) const override {
    Quadruped::Observe(physics, writer);
    const Vec3 origin = ToFrame(TorsoPosition(physics), TorsoMatrix(physics));
    writer.Begin("origin");
    for (const double value : origin) writer.Append(-value);
    writer.Begin("rangefinder");
    for (const int address : rangefinders_) {
      const double distance = physics.data().sensordata[address];
      // -1 is "nothing hit"
      writer.Append(distance == -1.0 ? 1.0 : std::tanh(distance));
    }
  }

  double Reward(const Physics& physics) const override {
    const double terrain_size = physics.model().hfield_size[0];
    const double distance = Norm(physics.SitePosition(workspace_));
    return UprightReward(physics, /*max_angle_degrees=*/20.0) *
           Tolerance(distance, {.lower = terrain_size,
                                .upper = kInfinity,
                                .margin = terrain_size,
                                .sigmoid = Sigmoid::kLinear,
                                .value_at_margin = 0.0});
  }

  bool ResetChangesAssets() const override { return true; }

 private:
  // A sinusoidal bowl times smooth random bumps.
  static void DrawTerrain(Physics& physics, RandomStream& random) {
    mjModel& model = physics.mutable_model();
    const int size = model.hfield_nrow[0];
    const int num_bumps =
        static_cast<int>(2.0 * model.hfield_size[0] / kBumpScale);
    std::vector<double> bumps(static_cast<size_t>(num_bumps * num_bumps));
    for (double& bump : bumps) bump = random.Uniform(kMinBump, 1.0);
    const std::vector<double> smooth = SplineZoom(bumps, num_bumps, size);

    float* heights = model.hfield_data + model.hfield_adr[0];
    const auto coordinate = [size](int i) {
      return 2.0 * i / (size - 1) - 1.0;
    };
    for (int row = 0; row < size; ++row) {
      for (int column = 0; column < size; ++column) {
        const double radius = std::clamp(
            std::hypot(coordinate(row), coordinate(column)), 0.04, 1.0);
        const double bowl = 0.5 - std::cos(2 * kPi * radius) / 2;
        const int i = row * size + column;
        heights[i] = static_cast<float>(bowl * smooth[static_cast<size_t>(i)]);
      }
    }
  }

  std::vector<int> rangefinders_;
};

class Fetch : public Quadruped {
 public:
  void Bind(Physics& physics, RandomStream& random) override {
    Quadruped::Bind(physics, random);
    floor_ = physics.GeomId("floor");
    ball_body_ = physics.BodyId("ball");
    ball_geom_ = physics.GeomId("ball");
    ball_root_ = physics.QposAddress("ball_root", /*size=*/7);
    ball_dof_ = physics.DofAddress("ball_root");
    target_ = physics.SiteId("target");
  }

  void InitializeEpisode(Physics& physics, RandomStream& random) override {
    const auto quaternion = AzimuthQuaternion(random.Uniform(0.0, 2 * kPi));
    const double radius = 0.9 * FloorSize(physics);
    const double x = random.Uniform(-radius, radius);
    const double y = random.Uniform(-radius, radius);
    PlaceAboveFloor(physics, quaternion, x, y);

    // the ball falls from 2 m with some horizontal speed
    double* ball = physics.mutable_data().qpos + ball_root_;
    double* ball_velocity = physics.mutable_data().qvel + ball_dof_;
    ball[0] = random.Uniform(-radius, radius);
    ball[1] = random.Uniform(-radius, radius);
    ball[2] = 2.0;
    ball_velocity[0] = 5.0 * random.Normal();
    ball_velocity[1] = 5.0 * random.Normal();
  }

  void Observe(const Physics& physics,
               ObservationWriter& writer) const override {
    Quadruped::Observe(physics, writer);
    const Span3 torso = TorsoPosition(physics);
    const Span9 frame = TorsoMatrix(physics);
    const Span3 ball_velocity(physics.data().qvel + ball_dof_, 3);
    const Span3 ball_rotation(physics.data().qvel + ball_dof_ + 3, 3);
    const Span3 velocity(physics.data().qvel + root_dof_, 3);
    // all in the frame of the torso; the ball's own rotation velocity is
    // turned as if it were a vector of the world, as the suite does
    writer.Begin("ball_state");
    writer.Append(
        ToFrame(Minus(physics.BodyPosition(ball_body_), torso), frame));
    writer.Append(ToFrame(Minus(ball_velocity, velocity), frame));
    writer.Append(ToFrame(ball_rotation, frame));
    writer.Array("target_position",
                 ToFrame(Minus(physics.SitePosition(target_), torso), frame));
  }

  double Reward(const Physics& physics) const override {
    const mjModel& model = physics.model();
    const double arena_radius = FloorSize(physics) * std::numbers::sqrt2;
    const auto nearness = [&](Span3 a, Span3 b, double radius) {
      return Tolerance(HorizontalDistance(a, b), {.upper = radius,
                                                  .margin = arena_radius,
                                                  .sigmoid = Sigmoid::kLinear,
                                                  .value_at_margin = 0.0});
    };
    const Span3 ball = physics.BodyPosition(ball_body_);
    const double reach = nearness(
        physics.SitePosition(workspace_), ball,
        model.site_size[3 * workspace_] + model.geom_size[3 * ball_geom_]);
    const double fetch = nearness(physics.SitePosition(target_), ball,
                                  model.site_size[3 * target_]);
    return UprightReward(physics) * reach * (0.5 + 0.5 * fetch);
  }

 private:
  // Half the side of the floor.
  double FloorSize(const Physics& physics) const {
    return physics.model().geom_size[3 * floor_];
  }

  int floor_ = 0;
  int ball_body_ = 0, ball_geom_ = 0;
  int ball_root_ = 0, ball_dof_ = 0;
  int target_ = 0;
};

enum class Scene { kFlat, kTerrain, kBall };

void EditModel(mjSpec& spec, Scene scene, double floor_size) {
  if (scene != Scene::kBall) {
    mjsGeom& floor = FindGeom(spec, "floor");
    floor.size[0] = floor.size[1] = floor_size;
    floor.size[2] = 0.5;
    for (const char* wall : {"wall_px", "wall_py", "wall_nx", "wall_ny"}) {
      DeleteElement(spec, mjOBJ_GEOM, wall);
    }
    DeleteElement(spec, mjOBJ_BODY, "ball");
    DeleteElement(spec, mjOBJ_SITE, "target");
  }
  if (scene == Scene::kTerrain) return;

  // measuring ranges is expensive: only where it is observed
  DeleteElement(spec, mjOBJ_GEOM, "terrain");
  mjsElement* sensor = mjs_firstElement(&spec, mjOBJ_SENSOR);
  while (sensor != nullptr) {
    mjsElement* next = mjs_nextElement(&spec, sensor);
    if (mjs_asSensor(sensor)->type == mjSENS_RANGEFINDER) {
      mjs_delete(&spec, sensor);
    }
    sensor = next;
  }
}

TaskDefinition Define(const char* name, Scene scene, double floor_size,
                      std::function<std::unique_ptr<Task>()> make_task) {
  return {.name = name,
          .model = "quadruped.xml",
          .options = {.time_limit_s = kTimeLimit, .control_timestep_s = 0.02},
          .edit = [=](mjSpec& spec) { EditModel(spec, scene, floor_size); },
          .make_task = std::move(make_task)};
}

}  // namespace

std::vector<TaskDefinition> QuadrupedTasks() {
  return {Define("quadruped-walk", Scene::kFlat, kTimeLimit * kWalkSpeed,
                 TaskMaker<Move>(kWalkSpeed)),
          Define("quadruped-run", Scene::kFlat, kTimeLimit * kRunSpeed,
                 TaskMaker<Move>(kRunSpeed)),
          Define("quadruped-escape", Scene::kTerrain, kEscapeFloorSize,
                 TaskMaker<Escape>()),
          // the model's floor stays unchanged
          Define("quadruped-fetch", Scene::kBall, /*floor_size=*/0.0,
                 TaskMaker<Fetch>())};
}

}  // namespace replicant::env
