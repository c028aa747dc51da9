#include "env/tasks/ball_in_cup.h"

#include <cmath>

#include "env/randomizers.h"

namespace replicant::env {
namespace {

class Catch : public Task {
 public:
  void Bind(Physics& physics, RandomStream& /*random*/) override {
    ball_x_ = physics.QposAddress("ball_x");
    ball_z_ = physics.QposAddress("ball_z");
    ball_body_ = physics.BodyId("ball");
    ball_geom_ = physics.GeomId("ball");
    target_ = physics.SiteId("target");
  }

  void InitializeEpisode(Physics& physics, RandomStream& random) override {
    double* qpos = physics.mutable_data().qpos;
    DrawUntilNoContact(physics, /*max_attempts=*/10'000, [&] {
      qpos[ball_x_] = random.Uniform(-0.2, 0.2);
      qpos[ball_z_] = random.Uniform(0.2, 0.5);
    });
  }

  void Observe(const Physics& physics,
               ObservationWriter& writer) const override {
    writer.Array("position", physics.qpos());
    writer.Array("velocity", physics.qvel());
  }

  double Reward(const Physics& physics) const override {
    const Span3 target = physics.SitePosition(target_);
    const Span3 ball = physics.BodyPosition(ball_body_);
    const double* target_size = physics.model().site_size + 3 * target_;
    const double ball_size = physics.model().geom_size[3 * ball_geom_];
    // the whole ball within the box in x and z
    for (const size_t axis : {0, 2}) {
      const double distance = std::abs(target[axis] - ball[axis]);
      if (!(distance < target_size[axis] - ball_size)) return 0.0;
    }
    return 1.0;
  }

 private:
  int ball_x_ = 0, ball_z_ = 0;
  int ball_body_ = 0, ball_geom_ = 0;
  int target_ = 0;
};

}  // namespace

std::vector<TaskDefinition> BallInCupTasks() {
  return {{.name = "ball_in_cup-catch",
           .model = "ball_in_cup.xml",
           .options = {.time_limit_s = 20.0, .control_timestep_s = 0.02},
           .make_task = TaskMaker<Catch>()}};
}

}  // namespace replicant::env
