#include "env/tasks/walker.h"

#include "env/randomizers.h"
#include "env/rewards.h"

namespace replicant::env {
namespace {

constexpr double kStandHeight = 1.2;  // m

class Walker : public Task {
 public:
  // `move_speed` in m/s; 0 to stand.
  explicit Walker(double move_speed) : move_speed_(move_speed) {}

  void Bind(Physics& physics, RandomStream& /*random*/) override {
    torso_ = physics.BodyId("torso");
    velocity_ = physics.SensorAddress("torso_subtreelinvel");
  }

  void InitializeEpisode(Physics& physics, RandomStream& random) override {
    RandomizeJoints(physics, random);
  }

  void Observe(const Physics& physics,
               ObservationWriter& writer) const override {
    writer.Begin("orientations");
    for (int body = 1; body < physics.model().nbody; ++body) {
      writer.Append(physics.BodyMatrix(body)[kXX]);
      writer.Append(physics.BodyMatrix(body)[kXZ]);
    }
    writer.Scalar("height", physics.BodyPosition(torso_)[2]);
    writer.Array("velocity", physics.qvel());
  }

  double Reward(const Physics& physics) const override {
    const double standing = Tolerance(physics.BodyPosition(torso_)[2],
                                      {.lower = kStandHeight,
                                       .upper = kInfinity,
                                       .margin = kStandHeight / 2});
    const double upright = (1.0 + physics.BodyMatrix(torso_)[kZZ]) / 2.0;
    const double stand_reward = (3.0 * standing + upright) / 4.0;
    if (move_speed_ == 0.0) return stand_reward;
    const double move_reward = Tolerance(physics.data().sensordata[velocity_],
                                         {.lower = move_speed_,
                                          .upper = kInfinity,
                                          .margin = move_speed_ / 2,
                                          .sigmoid = Sigmoid::kLinear,
                                          .value_at_margin = 0.5});
    return stand_reward * (5.0 * move_reward + 1.0) / 6.0;
  }

 private:
  double move_speed_;
  int torso_ = 0;
  int velocity_ = 0;
};

TaskDefinition Define(const char* name, double move_speed) {
  return {.name = std::string("walker-") + name,
          .model = "walker.xml",
          .options = {.time_limit_s = 25.0, .control_timestep_s = 0.025},
          .make_task = TaskMaker<Walker>(move_speed)};
}

}  // namespace

std::vector<TaskDefinition> WalkerTasks() {
  return {Define("stand", 0.0), Define("walk", 1.0), Define("run", 8.0)};
}

}  // namespace replicant::env
