#include "env/tasks/stacker.h"

#include <algorithm>
#include <array>
#include <numbers>
#include <numeric>
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

constexpr double kClose = 0.01;    // m
constexpr double kHandAway = 0.1;  // m
constexpr int kBoxesInModel = 4;

class Stacker : public Task {
 public:
  explicit Stacker(int num_boxes) : num_boxes_(num_boxes) {}

  void Bind(Physics& physics, RandomStream& /*random*/) override {
    // all sensors of the model are touch sensors
    std::vector<int> touches(static_cast<size_t>(physics.model().nsensordata));
    std::iota(touches.begin(), touches.end(), 0);
    arm_.emplace(physics, std::move(touches));
    for (int i = 0; i < num_boxes_; ++i) {
      const std::string name = "box" + std::to_string(i);
      boxes_.push_back({.body = physics.BodyId(name),
                        .site = physics.SiteId(name),
                        .x = physics.QposAddress(name + "_x"),
                        .angle = physics.QposAddress(name + "_y"),
                        .z = physics.QposAddress(name + "_z"),
                        .dofs = {physics.DofAddress(name + "_x"),
                                 physics.DofAddress(name + "_y"),
                                 physics.DofAddress(name + "_z")}});
    }
    target_body_ = physics.BodyId("target");
    target_site_ = physics.SiteId("target");
    target_geom_ = physics.GeomId("target");
    grasp_ = physics.SiteId("grasp");
  }

  void InitializeEpisode(Physics& physics, RandomStream& random) override {
    double* qpos = physics.mutable_data().qpos;
    double* target = physics.mutable_model().body_pos + 3 * target_body_;
    DrawUntilNoContact(physics, /*max_attempts=*/100'000, [&] {
      arm_->DrawPose(physics, random);
      // height of the centre of a box in a stack
      const auto level = static_cast<double>(random.UniformInt(num_boxes_));
      target[2] = BoxSize(physics) * (2 * level + 1);
      target[0] = random.Uniform(-0.37, 0.37);
      for (const Box& box : boxes_) {
        qpos[box.x] = random.Uniform(0.1, 0.3);
        qpos[box.z] = random.Uniform(0.0, 0.7);
        qpos[box.angle] = random.Uniform(0.0, 2 * std::numbers::pi);
      }
    });
  }

  void Observe(const Physics& physics,
               ObservationWriter& writer) const override {
    arm_->Observe(physics, writer);
    writer.Begin("box_pos", /*row_size=*/4);
    for (const Box& box : boxes_) AppendPlanarPose(physics, box.body, writer);
    writer.Begin("box_vel");
    for (const Box& box : boxes_) {
      for (const int dof : box.dofs) writer.Append(physics.data().qvel[dof]);
    }
    writer.Begin("target_pos");
    writer.Append(physics.BodyPosition(target_body_)[0]);
    writer.Append(physics.BodyPosition(target_body_)[2]);
  }

  double Reward(const Physics& physics) const override {
    double box_distance = kInfinity;
    for (const Box& box : boxes_) {
      box_distance =
          std::min(box_distance, SiteDistance(physics, box.site, target_site_));
    }
    const double box_is_close =
        Tolerance(box_distance, {.margin = 2 * BoxSize(physics)});
    const double hand_is_far =
        Tolerance(SiteDistance(physics, grasp_, target_site_),
                  {.lower = kHandAway, .upper = kInfinity, .margin = kClose});
    return box_is_close * hand_is_far;
  }

 private:
  struct Box {
    int body, site;
    int x, angle, z;          // in qpos
    std::array<int, 3> dofs;  // x, angle, z in qvel
  };

  // Half the side of a box, which the target shows.
  double BoxSize(const Physics& physics) const {
    return physics.model().geom_size[3 * target_geom_];
  }

  int num_boxes_;
  std::optional<PlanarArm> arm_;
  std::vector<Box> boxes_;
  int target_body_ = 0, target_site_ = 0, target_geom_ = 0;
  int grasp_ = 0;
};

TaskDefinition Define(const char* name, int num_boxes) {
  return {.name = name,
          .model = "stacker.xml",
          .options = {.time_limit_s = 10.0, .control_timestep_s = 0.01},
          .edit =
              [num_boxes](mjSpec& spec) {
                for (int i = num_boxes; i < kBoxesInModel; ++i) {
                  DeleteElement(spec, mjOBJ_BODY, "box" + std::to_string(i));
                }
              },
          .make_task = TaskMaker<Stacker>(num_boxes)};
}

}  // namespace

std::vector<TaskDefinition> StackerTasks() {
  return {Define("stacker-stack_2", 2), Define("stacker-stack_4", 4)};
}

}  // namespace replicant::env
