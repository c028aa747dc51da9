#include "env/tasks/fish.h"

#include <array>

#include "env/randomizers.h"
#include "env/rewards.h"

namespace replicant::env {
namespace {

constexpr std::array kJoints = {
    "tail1",          "tail_twist",   "tail2",        "finright_roll",
    "finright_pitch", "finleft_roll", "finleft_pitch"};

// Base of both tasks.
class Fish : public Task {
 public:
  void Bind(Physics& physics, RandomStream& /*random*/) override {
    torso_ = physics.BodyId("torso");
    mouth_ = physics.GeomId("mouth");
    target_ = physics.GeomId("target");
    root_ = physics.QposAddress("root", /*size=*/7);
    for (size_t i = 0; i < kJoints.size(); ++i) {
      joints_[i] = physics.QposAddress(kJoints[i]);
    }
  }

 protected:
  // Any orientation, small joint angles.
  void DrawPose(Physics& physics, RandomStream& random) const {
    double* qpos = physics.mutable_data().qpos;
    RandomDirection(random, {qpos + root_ + 3, 4});
    for (const int joint : joints_) qpos[joint] = random.Uniform(-0.2, 0.2);
  }

  void ObservePose(const Physics& physics, ObservationWriter& writer) const {
    writer.Begin("joint_angles");
    for (const int joint : joints_) writer.Append(physics.data().qpos[joint]);
    writer.Scalar("upright", Upright(physics));
  }

  // Cosine of the angle between the torso's z axis and the world's.
  double Upright(const Physics& physics) const {
    return physics.BodyMatrix(torso_)[kZZ];
  }

  int mouth_ = 0, target_ = 0;

 private:
  int torso_ = 0;
  int root_ = 0;
  std::array<int, kJoints.size()> joints_{};
};

class UprightTask : public Fish {
 public:
  void Bind(Physics& physics, RandomStream& random) override {
    Fish::Bind(physics, random);
    // the target has no meaning here: hide it
    physics.mutable_model().geom_rgba[4 * target_ + 3] = 0.0F;
  }

  void InitializeEpisode(Physics& physics, RandomStream& random) override {
    DrawPose(physics, random);
  }

  void Observe(const Physics& physics,
               ObservationWriter& writer) const override {
    ObservePose(physics, writer);
    writer.Array("velocity", physics.qvel());
  }

  double Reward(const Physics& physics) const override {
    return Tolerance(Upright(physics),
                     {.lower = 1.0, .upper = 1.0, .margin = 1.0});
  }
};

class SwimTask : public Fish {
 public:
  void InitializeEpisode(Physics& physics, RandomStream& random) override {
    DrawPose(physics, random);
    double* target = physics.mutable_model().geom_pos + 3 * target_;
    target[0] = random.Uniform(-0.4, 0.4);
    target[1] = random.Uniform(-0.4, 0.4);
    target[2] = random.Uniform(0.1, 0.3);
  }

  void Observe(const Physics& physics,
               ObservationWriter& writer) const override {
    ObservePose(physics, writer);
    writer.Array("target", MouthToTarget(physics));
    writer.Array("velocity", physics.qvel());
  }

  double Reward(const Physics& physics) const override {
    const double* size = physics.model().geom_size;
    const double radii = size[3 * mouth_] + size[3 * target_];
    const double in_target = Tolerance(Norm(MouthToTarget(physics)),
                                       {.upper = radii, .margin = 2 * radii});
    const double is_upright = 0.5 * (Upright(physics) + 1.0);
    return (7.0 * in_target + is_upright) / 8.0;
  }

 private:
  // In the frame of the mouth.
  Vec3 MouthToTarget(const Physics& physics) const {
    return ToFrame(
        Minus(physics.GeomPosition(target_), physics.GeomPosition(mouth_)),
        physics.GeomMatrix(mouth_));
  }
};

}  // namespace

std::vector<TaskDefinition> FishTasks() {
  const ControlOptions options{.time_limit_s = 40.0,
                               .control_timestep_s = 0.04};
  return {{.name = "fish-upright",
           .model = "fish.xml",
           .options = options,
           .make_task = TaskMaker<UprightTask>()},
          {.name = "fish-swim",
           .model = "fish.xml",
           .options = options,
           .make_task = TaskMaker<SwimTask>()}};
}

}  // namespace replicant::env
