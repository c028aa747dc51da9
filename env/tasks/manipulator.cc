#include "env/tasks/manipulator.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "env/model_edit.h"
#include "env/randomizers.h"
#include "env/rewards.h"
#include "env/tasks/planar_arm.h"

namespace replicant::env {
namespace {

constexpr double kPi = std::numbers::pi;
constexpr double kClose = 0.01;  // m
// Probabilities of a start in the hand and of one at the target.
constexpr double kInHandProbability = 0.1;
constexpr double kInTargetProbability = 0.1;

// A position in the plane and an angle around y.
struct PlanarPose {
  double x, z, angle;
};

class Manipulator : public Task {
 public:
  Manipulator(bool use_peg, bool insert) : use_peg_(use_peg), insert_(insert) {}

  void Bind(Physics& physics, RandomStream& /*random*/) override {
    std::vector<int> touches;
    for (const char* sensor : {"palm_touch", "finger_touch", "thumb_touch",
                               "fingertip_touch", "thumbtip_touch"}) {
      touches.push_back(physics.SensorAddress(sensor));
    }
    arm_.emplace(physics, std::move(touches));
    const std::string object = use_peg_ ? "peg" : "ball";
    object_ = physics.BodyId(object);
    target_ = physics.BodyId("target_" + object);
    if (insert_) receptacle_ = physics.BodyId(use_peg_ ? "slot" : "cup");
    for (size_t i = 0; i < 3; ++i) {
      const std::string joint = object + "_" + "xzy"[i];
      object_qpos_[i] = physics.QposAddress(joint);
      object_dofs_[i] = physics.DofAddress(joint);
    }
    BindSites(physics);
  }

  void InitializeEpisode(Physics& physics, RandomStream& random) override {
    DrawUntilNoContact(physics, /*max_attempts=*/100'000, [&] {
      arm_->DrawPose(physics, random);
      const PlanarPose target = DrawTarget(physics, random);
      DrawObject(physics, random, target);
    });
  }

  void Observe(const Physics& physics,
               ObservationWriter& writer) const override {
    arm_->Observe(physics, writer);
    writer.Begin("object_pos");
    AppendPlanarPose(physics, object_, writer);
    writer.Begin("object_vel");
    for (const int dof : object_dofs_) writer.Append(physics.data().qvel[dof]);
    writer.Begin("target_pos");
    AppendPlanarPose(physics, target_, writer);
  }

  double Reward(const Physics& physics) const override {
    if (!use_peg_) return Closeness(physics, ball_);
    const double grasping =
        (Closeness(physics, peg_grasp_) + Closeness(physics, peg_pinch_)) / 2;
    const double bringing =
        (Closeness(physics, peg_) + Closeness(physics, peg_tip_)) / 2;
    return std::max(bringing, grasping / 3);
  }

 private:
  // Two sites that should come together.
  using SitePair = std::array<int, 2>;

  void BindSites(const Physics& physics) {
    grasp_ = physics.SiteId("grasp");
    if (use_peg_) {
      peg_grasp_ = {physics.SiteId("peg_grasp"), grasp_};
      peg_pinch_ = {physics.SiteId("peg_pinch"), physics.SiteId("pinch")};
      peg_ = {physics.SiteId("peg"), physics.SiteId("target_peg")};
      peg_tip_ = {physics.SiteId("target_peg_tip"), physics.SiteId("peg_tip")};
    } else {
      ball_ = {physics.SiteId("ball"), physics.SiteId("target_ball")};
    }
  }

  static double Closeness(const Physics& physics, const SitePair& sites) {
    return Tolerance(SiteDistance(physics, sites[0], sites[1]),
                     {.upper = kClose, .margin = 2 * kClose});
  }

  static void PlaceBody(mjModel& model, int body, const PlanarPose& pose) {
    model.body_pos[3 * body] = pose.x;
    model.body_pos[3 * body + 2] = pose.z;
    model.body_quat[4 * body] = std::cos(pose.angle / 2);
    model.body_quat[4 * body + 2] = std::sin(pose.angle / 2);
  }

  PlanarPose DrawTarget(Physics& physics, RandomStream& random) const {
    PlanarPose target{.x = random.Uniform(-0.4, 0.4),
                      .z = random.Uniform(0.1, 0.4)};
    const double max_angle = insert_ ? kPi / 3 : kPi;
    target.angle = random.Uniform(-max_angle, max_angle);
    if (insert_) PlaceBody(physics.mutable_model(), receptacle_, target);
    PlaceBody(physics.mutable_model(), target_, target);
    return target;
  }

  void DrawObject(Physics& physics, RandomStream& random,
                  const PlanarPose& target) const {
    PlanarPose object = target;
    const double kind = random.Uniform();
    if (kind < kInHandProbability) {
      object = InHand(physics);
    } else if (kind >= kInHandProbability + kInTargetProbability) {
      object.x = random.Uniform(-0.5, 0.5);
      object.z = random.Uniform(0.0, 0.7);
      object.angle = random.Uniform(0.0, 2 * kPi);
      // kept when the start is drawn again, even for another kind of start, as
      // in the suite
      physics.mutable_data().qvel[object_dofs_[0]] = random.Uniform(-5.0, 5.0);
    }
    double* qpos = physics.mutable_data().qpos;
    qpos[object_qpos_[0]] = object.x;
    qpos[object_qpos_[1]] = object.z;
    qpos[object_qpos_[2]] = object.angle;
  }

  // The pose between the fingers of the arm as it was just drawn.
  PlanarPose InHand(Physics& physics) const {
    // only the frames are needed; contacts are checked once the object is in
    // place
    (void)physics.ForwardWithoutActuation();
    const Span3 position = physics.SitePosition(grasp_);
    const Span9 matrix = physics.SiteMatrix(grasp_);
    return {.x = position[0],
            .z = position[2],
            .angle = kPi - std::atan2(matrix[kZX], matrix[kXX])};
  }

  bool use_peg_;
  bool insert_;
  std::optional<PlanarArm> arm_;
  int object_ = 0, target_ = 0, receptacle_ = 0;
  std::array<int, 3> object_qpos_{};  // x, z, angle
  std::array<int, 3> object_dofs_{};
  int grasp_ = 0;
  SitePair ball_{}, peg_{}, peg_tip_{}, peg_grasp_{}, peg_pinch_{};
};

// Removes the props that the task does not need.
void RemoveProps(mjSpec& spec, bool use_peg, bool insert) {
  const auto keep = [&spec](bool is_kept, const char* body) {
    if (!is_kept) DeleteElement(spec, mjOBJ_BODY, body);
  };
  keep(!use_peg, "ball");
  keep(!use_peg, "target_ball");
  keep(!use_peg && insert, "cup");
  keep(use_peg, "peg");
  keep(use_peg, "target_peg");
  keep(use_peg && insert, "slot");
}

TaskDefinition Define(const char* name, bool use_peg, bool insert) {
  return {.name = name,
          .model = "manipulator.xml",
          .options = {.time_limit_s = 10.0, .control_timestep_s = 0.01},
          .edit = [=](mjSpec& spec) { RemoveProps(spec, use_peg, insert); },
          .make_task = TaskMaker<Manipulator>(use_peg, insert)};
}

}  // namespace

std::vector<TaskDefinition> ManipulatorTasks() {
  return {Define("manipulator-bring_ball", /*use_peg=*/false, /*insert=*/false),
          Define("manipulator-bring_peg", /*use_peg=*/true, /*insert=*/false),
          Define("manipulator-insert_ball", /*use_peg=*/false, /*insert=*/true),
          Define("manipulator-insert_peg", /*use_peg=*/true, /*insert=*/true)};
}

}  // namespace replicant::env
