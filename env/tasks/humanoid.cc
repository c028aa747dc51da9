#include "env/tasks/humanoid.h"

#include <array>

#include "env/randomizers.h"
#include "env/rewards.h"

namespace replicant::env {
namespace {

constexpr double kStandHeight = 1.4;  // of the head, in m
constexpr double kWalkSpeed = 1.0;    // m/s
constexpr double kRunSpeed = 10.0;    // m/s
// qpos of the free joint at the root.
constexpr int64_t kRootSize = 7;

// The differences between the two bodies.
struct BodyPlan {
  const char* torso;
  const char* velocity_sensor;
  // component of the torso's matrix that is 1 when it stands
  MatrixIndex upright;
  // in the order of the observation
  std::array<const char*, 4> extremities;
};

constexpr BodyPlan kHumanoid = {
    .torso = "torso",
    .velocity_sensor = "torso_subtreelinvel",
    .upright = kZZ,
    .extremities = {"left_hand", "left_foot", "right_hand", "right_foot"}};
constexpr BodyPlan kHumanoidCmu = {
    .torso = "thorax",
    .velocity_sensor = "thorax_subtreelinvel",
    .upright = kZY,
    .extremities = {"lhand", "lfoot", "rhand", "rfoot"}};

enum class Seen { kFeatures, kPureState };

class Humanoid : public Task {
 public:
  // `move_speed` in m/s; 0 to stand.
  Humanoid(const BodyPlan& plan, double move_speed, Seen seen)
      : plan_(plan), move_speed_(move_speed), seen_(seen) {}

  void Bind(Physics& physics, RandomStream& /*random*/) override {
    torso_ = physics.BodyId(plan_.torso);
    head_ = physics.BodyId("head");
    velocity_ = physics.SensorAddress(plan_.velocity_sensor, /*size=*/3);
    for (size_t i = 0; i < extremities_.size(); ++i) {
      extremities_[i] = physics.BodyId(plan_.extremities[i]);
    }
  }

  void InitializeEpisode(Physics& physics, RandomStream& random) override {
    DrawUntilNoContact(physics, /*max_attempts=*/10'000,
                       [&] { RandomizeJoints(physics, random); });
  }

  void Observe(const Physics& physics,
               ObservationWriter& writer) const override {
    if (seen_ == Seen::kPureState) {
      writer.Array("position", physics.qpos());
      writer.Array("velocity", physics.qvel());
      return;
    }
    const Span9 frame = physics.BodyMatrix(torso_);
    const Span3 origin = physics.BodyPosition(torso_);
    writer.Array("joint_angles", physics.QposFrom(kRootSize));
    writer.Scalar("head_height", physics.BodyPosition(head_)[2]);
    writer.Begin("extremities");
    for (const int body : extremities_) {
      writer.Append(ToFrame(Minus(physics.BodyPosition(body), origin), frame));
    }
    writer.Array("torso_vertical", frame.subspan(kZX, 3));
    writer.Array("com_velocity", physics.Sensor(velocity_, 3));
    writer.Array("velocity", physics.qvel());
  }

  double Reward(const Physics& physics) const override {
    const double standing =
        Tolerance(physics.BodyPosition(head_)[2], {.lower = kStandHeight,
                                                   .upper = kInfinity,
                                                   .margin = kStandHeight / 4});
    const double upright = Tolerance(
        physics.BodyMatrix(torso_)[static_cast<size_t>(plan_.upright)],
        {.lower = 0.9,
         .upper = kInfinity,
         .margin = 1.9,
         .sigmoid = Sigmoid::kLinear,
         .value_at_margin = 0.0});
    const double small_control = (4.0 + SmallControl(physics.ctrl())) / 5.0;
    return small_control * standing * upright * MoveReward(physics);
  }

 private:
  double MoveReward(const Physics& physics) const {
    const auto velocity = physics.Sensor(velocity_, 2);
    if (move_speed_ == 0.0) return MeanTolerance(velocity, {.margin = 2.0});
    const double move = Tolerance(Norm(velocity), {.lower = move_speed_,
                                                   .upper = kInfinity,
                                                   .margin = move_speed_,
                                                   .sigmoid = Sigmoid::kLinear,
                                                   .value_at_margin = 0.0});
    return (5.0 * move + 1.0) / 6.0;
  }

  BodyPlan plan_;
  double move_speed_;
  Seen seen_;
  int torso_ = 0, head_ = 0;
  int velocity_ = 0;
  std::array<int, 4> extremities_{};
};

TaskDefinition Define(const char* name, double move_speed,
                      Seen seen = Seen::kFeatures) {
  return {.name = name,
          .model = "humanoid.xml",
          .options = {.time_limit_s = 25.0, .control_timestep_s = 0.025},
          .make_task = TaskMaker<Humanoid>(kHumanoid, move_speed, seen)};
}

TaskDefinition DefineCmu(const char* name, double move_speed) {
  return {.name = name,
          .model = "humanoid_CMU.xml",
          .options = {.time_limit_s = 20.0, .control_timestep_s = 0.02},
          .make_task =
              TaskMaker<Humanoid>(kHumanoidCmu, move_speed, Seen::kFeatures)};
}

}  // namespace

std::vector<TaskDefinition> HumanoidTasks() {
  return {Define("humanoid-stand", 0.0), Define("humanoid-walk", kWalkSpeed),
          Define("humanoid-run", kRunSpeed),
          Define("humanoid-run_pure_state", kRunSpeed, Seen::kPureState)};
}

std::vector<TaskDefinition> HumanoidCmuTasks() {
  return {DefineCmu("humanoid_CMU-stand", 0.0),
          DefineCmu("humanoid_CMU-walk", kWalkSpeed),
          DefineCmu("humanoid_CMU-run", kRunSpeed)};
}

}  // namespace replicant::env
