#include "env/tasks/pendulum.h"

#include <cmath>
#include <numbers>

#include "env/rewards.h"

namespace replicant::env {
namespace {

constexpr double kPi = std::numbers::pi;

class SwingUp : public Task {
 public:
  void Bind(Physics& physics, RandomStream& /*random*/) override {
    pole_ = physics.BodyId("pole");
    hinge_qpos_ = physics.QposAddress("hinge");
    hinge_dof_ = physics.DofAddress("hinge");
  }

  void InitializeEpisode(Physics& physics, RandomStream& random) override {
    physics.mutable_data().qpos[hinge_qpos_] = random.Uniform(-kPi, kPi);
  }

  void Observe(const Physics& physics,
               ObservationWriter& writer) const override {
    writer.Begin("orientation");
    writer.Append(physics.BodyMatrix(pole_)[kZZ]);
    writer.Append(physics.BodyMatrix(pole_)[kXZ]);
    writer.Begin("velocity");
    writer.Append(physics.data().qvel[hinge_dof_]);
  }

  double Reward(const Physics& physics) const override {
    static const double cosine_bound = std::cos(8.0 * kPi / 180.0);
    return Tolerance(physics.BodyMatrix(pole_)[kZZ],
                     {.lower = cosine_bound, .upper = 1.0});
  }

 private:
  int pole_ = 0;
  int hinge_qpos_ = 0, hinge_dof_ = 0;
};

}  // namespace

std::vector<TaskDefinition> PendulumTasks() {
  return {{.name = "pendulum-swingup",
           .model = "pendulum.xml",
           .options = {.time_limit_s = 20.0},
           .make_task = TaskMaker<SwingUp>()}};
}

}  // namespace replicant::env
