#include "env/tasks/acrobot.h"

#include <numbers>

#include "env/rewards.h"

namespace replicant::env {
namespace {

class Acrobot : public Task {
 public:
  explicit Acrobot(bool is_sparse) : is_sparse_(is_sparse) {}

  void Bind(Physics& physics, RandomStream& /*random*/) override {
    upper_arm_ = physics.BodyId("upper_arm");
    lower_arm_ = physics.BodyId("lower_arm");
    shoulder_ = physics.QposAddress("shoulder");
    elbow_ = physics.QposAddress("elbow");
    tip_ = physics.SiteId("tip");
    target_ = physics.SiteId("target");
  }

  void InitializeEpisode(Physics& physics, RandomStream& random) override {
    constexpr double kPi = std::numbers::pi;
    double* qpos = physics.mutable_data().qpos;
    qpos[shoulder_] = random.Uniform(-kPi, kPi);
    qpos[elbow_] = random.Uniform(-kPi, kPi);
  }

  void Observe(const Physics& physics,
               ObservationWriter& writer) const override {
    const Span9 upper = physics.BodyMatrix(upper_arm_);
    const Span9 lower = physics.BodyMatrix(lower_arm_);
    // sines, then cosines
    writer.Begin("orientations");
    for (const MatrixIndex index : {kXZ, kZZ}) {
      writer.Append(upper[index]);
      writer.Append(lower[index]);
    }
    writer.Array("velocity", physics.qvel());
  }

  double Reward(const Physics& physics) const override {
    const Vec3 to_target =
        Minus(physics.SitePosition(target_), physics.SitePosition(tip_));
    return Tolerance(Norm(to_target),
                     {.upper = physics.model().site_size[3 * target_],
                      .margin = is_sparse_ ? 0.0 : 1.0});
  }

 private:
  bool is_sparse_;
  int upper_arm_ = 0, lower_arm_ = 0;
  int shoulder_ = 0, elbow_ = 0;
  int tip_ = 0, target_ = 0;
};

}  // namespace

std::vector<TaskDefinition> AcrobotTasks() {
  const ControlOptions options{.time_limit_s = 10.0};
  return {{.name = "acrobot-swingup",
           .model = "acrobot.xml",
           .options = options,
           .make_task = TaskMaker<Acrobot>(/*is_sparse=*/false)},
          {.name = "acrobot-swingup_sparse",
           .model = "acrobot.xml",
           .options = options,
           .make_task = TaskMaker<Acrobot>(/*is_sparse=*/true)}};
}

}  // namespace replicant::env
