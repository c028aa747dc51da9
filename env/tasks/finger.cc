#include "env/tasks/finger.h"

#include <array>
#include <cmath>
#include <numbers>

#include "env/randomizers.h"

namespace replicant::env {
namespace {

constexpr double kSpinVelocity = 15.0;  // rad/s
constexpr int kMaxAttempts = 1000;

// The x and z components of a vector in the plane of the finger.
using Vec2 = std::array<double, 2>;

// Base of both kinds of task: the start of the joints and the observation.
class Finger : public Task {
 public:
  void Bind(Physics& physics, RandomStream& /*random*/) override {
    proximal_ = physics.SensorAddress("proximal");
    distal_ = physics.SensorAddress("distal");
    velocities_ = {physics.SensorAddress("proximal_velocity"),
                   physics.SensorAddress("distal_velocity"),
                   physics.SensorAddress("hinge_velocity")};
    touches_ = {physics.SensorAddress("touchtop"),
                physics.SensorAddress("touchbottom")};
    tip_ = physics.SensorAddress("tip", /*size=*/3);
    spinner_ = physics.SensorAddress("spinner", /*size=*/3);
    target_ = physics.SensorAddress("target", /*size=*/3);
    target_site_ = physics.SiteId("target");
  }

  void Observe(const Physics& physics,
               ObservationWriter& writer) const override {
    const double* sensors = physics.data().sensordata;
    writer.Begin("position");
    writer.Append(sensors[proximal_]);
    writer.Append(sensors[distal_]);
    writer.Append(FromSpinner(physics, tip_));
    writer.Begin("velocity");
    for (const int address : velocities_) writer.Append(sensors[address]);
    writer.Begin("touch");
    for (const int address : touches_) {
      writer.Append(std::log1p(sensors[address]));
    }
  }

 protected:
  static void DrawJoints(Physics& physics, RandomStream& random) {
    DrawUntilNoContact(physics, kMaxAttempts,
                       [&] { RandomizeJoints(physics, random); });
  }

  // A position sensor's reading relative to the hinge of the spinner.
  Vec2 FromSpinner(const Physics& physics, int address) const {
    const double* sensors = physics.data().sensordata;
    return {sensors[address] - sensors[spinner_],
            sensors[address + 2] - sensors[spinner_ + 2]};
  }

  double HingeVelocity(const Physics& physics) const {
    return physics.data().sensordata[velocities_[2]];
  }

  int tip_ = 0, spinner_ = 0, target_ = 0;
  int target_site_ = 0;

 private:
  int proximal_ = 0, distal_ = 0;
  std::array<int, 3> velocities_{};
  std::array<int, 2> touches_{};
};

class Spin : public Finger {
 public:
  void Bind(Physics& physics, RandomStream& random) override {
    Finger::Bind(physics, random);
    // hide what only the turn tasks need
    mjModel& model = physics.mutable_model();
    model.site_rgba[4 * target_site_ + 3] = 0.0F;
    model.site_rgba[4 * physics.SiteId("tip") + 3] = 0.0F;
    model.dof_damping[physics.DofAddress("hinge")] = 0.03;
  }

  void InitializeEpisode(Physics& physics, RandomStream& random) override {
    DrawJoints(physics, random);
  }

  double Reward(const Physics& physics) const override {
    return HingeVelocity(physics) <= -kSpinVelocity ? 1.0 : 0.0;
  }
};

class Turn : public Finger {
 public:
  // `target_radius` in m.
  explicit Turn(double target_radius) : target_radius_(target_radius) {}

  void Bind(Physics& physics, RandomStream& random) override {
    Finger::Bind(physics, random);
    physics.mutable_model().site_size[3 * target_site_] = target_radius_;
  }

  void InitializeEpisode(Physics& physics, RandomStream& random) override {
    constexpr double kPi = std::numbers::pi;
    // the target lies on the circle that the spinner's tip describes
    const double angle = random.Uniform(-kPi, kPi);
    mjModel& model = physics.mutable_model();
    const double* hinge = physics.data().xanchor + 3 * physics.JointId("hinge");
    const double* cap = model.geom_size + 3 * physics.GeomId("cap1");
    const double radius = cap[0] + cap[1] + cap[2];
    double* target = model.site_pos + 3 * target_site_;
    target[0] = hinge[0] + radius * std::sin(angle);
    target[2] = hinge[2] + radius * std::cos(angle);
    DrawJoints(physics, random);
  }

  void Observe(const Physics& physics,
               ObservationWriter& writer) const override {
    Finger::Observe(physics, writer);
    writer.Array("target_position", FromSpinner(physics, target_));
    writer.Scalar("dist_to_target", DistanceToTarget(physics));
  }

  double Reward(const Physics& physics) const override {
    return DistanceToTarget(physics) <= 0.0 ? 1.0 : 0.0;
  }

 private:
  // Signed distance of the tip to the target's surface, negative inside.
  double DistanceToTarget(const Physics& physics) const {
    const Vec2 target = FromSpinner(physics, target_);
    const Vec2 tip = FromSpinner(physics, tip_);
    const Vec2 to_target = {target[0] - tip[0], target[1] - tip[1]};
    return Norm(to_target) - physics.model().site_size[3 * target_site_];
  }

  double target_radius_;
};

}  // namespace

std::vector<TaskDefinition> FingerTasks() {
  const ControlOptions options{.time_limit_s = 20.0,
                               .control_timestep_s = 0.02};
  return {{.name = "finger-spin",
           .model = "finger.xml",
           .options = options,
           .make_task = TaskMaker<Spin>()},
          {.name = "finger-turn_easy",
           .model = "finger.xml",
           .options = options,
           .make_task = TaskMaker<Turn>(/*target_radius=*/0.07)},
          {.name = "finger-turn_hard",
           .model = "finger.xml",
           .options = options,
           .make_task = TaskMaker<Turn>(/*target_radius=*/0.03)}};
}

}  // namespace replicant::env
