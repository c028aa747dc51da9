#include "env/tasks/reacher.h"

#include <array>
#include <cmath>
#include <numbers>

#include "env/randomizers.h"
#include "env/rewards.h"

namespace replicant::env {
namespace {

class Reacher : public Task {
 public:
  // `target_size` in m.
  explicit Reacher(double target_size) : target_size_(target_size) {}

  void Bind(Physics& physics, RandomStream& /*random*/) override {
    finger_ = physics.GeomId("finger");
    target_ = physics.GeomId("target");
    physics.mutable_model().geom_size[3 * target_] = target_size_;
  }

  void InitializeEpisode(Physics& physics, RandomStream& random) override {
    mjModel& model = physics.mutable_model();
    RandomizeJoints(physics, random);
    const double angle = random.Uniform(0.0, 2 * std::numbers::pi);
    const double radius = random.Uniform(0.05, 0.20);
    model.geom_pos[3 * target_] = radius * std::sin(angle);
    model.geom_pos[3 * target_ + 1] = radius * std::cos(angle);
  }

  void Observe(const Physics& physics,
               ObservationWriter& writer) const override {
    writer.Array("position", physics.qpos());
    writer.Array("to_target", FingerToTarget(physics));
    writer.Array("velocity", physics.qvel());
  }

  double Reward(const Physics& physics) const override {
    const double* size = physics.model().geom_size;
    const double radii = size[3 * target_] + size[3 * finger_];
    return Tolerance(Norm(FingerToTarget(physics)), {.upper = radii});
  }

 private:
  std::array<double, 2> FingerToTarget(const Physics& physics) const {
    const Span3 target = physics.GeomPosition(target_);
    const Span3 finger = physics.GeomPosition(finger_);
    return {target[0] - finger[0], target[1] - finger[1]};
  }

  double target_size_;
  int finger_ = 0, target_ = 0;
};

TaskDefinition Define(const char* name, double target_size) {
  return {.name = name,
          .model = "reacher.xml",
          .options = {.time_limit_s = 20.0},
          .make_task = TaskMaker<Reacher>(target_size)};
}

}  // namespace

std::vector<TaskDefinition> ReacherTasks() {
  return {Define("reacher-easy", 0.05), Define("reacher-hard", 0.015)};
}

}  // namespace replicant::env
