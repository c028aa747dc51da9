#include "env/tasks/swimmer.h"

#include <fmt/format.h>

#include <array>
#include <string>

#include "base/error.h"
#include "env/model_edit.h"
#include "env/randomizers.h"
#include "env/rewards.h"

namespace replicant::env {
namespace {

// Half the side of the box from which the target is drawn, in m, and the
// probability of the smaller box.
constexpr double kNear = 0.3;
constexpr double kFar = 2.0;
constexpr double kNearProbability = 0.2;
// qpos of the root: x, y and the heading.
constexpr int64_t kRootSize = 3;
// Sensors before the velocities: four vectors.
constexpr int kFirstVelocity = 12;
// Sensors per link: linear and angular velocity.
constexpr int kVelocitySize = 6;

class Swimmer : public Task {
 public:
  void Bind(Physics& physics, RandomStream& /*random*/) override {
    head_ = physics.BodyId("head");
    nose_ = physics.GeomId("nose");
    target_ = physics.GeomId("target");
    light_ = physics.Id(mjOBJ_LIGHT, "target_light");
    const auto num_readings = physics.model().nsensordata;
    if (num_readings < kFirstVelocity ||
        (num_readings - kFirstVelocity) % kVelocitySize != 0) {
      throw InvalidArgument(fmt::format(
          "{}: the model's sensors have {} numbers, want {} and {} "
          "for each link",
          physics.name(), num_readings, kFirstVelocity, kVelocitySize));
    }
  }

  void InitializeEpisode(Physics& physics, RandomStream& random) override {
    RandomizeJoints(physics, random);
    const double box = random.Uniform() < kNearProbability ? kNear : kFar;
    mjModel& model = physics.mutable_model();
    for (int axis = 0; axis < 2; ++axis) {
      const double position = random.Uniform(-box, box);
      model.geom_pos[3 * target_ + axis] = position;
      model.light_pos[3 * light_ + axis] = position;
    }
  }

  void Observe(const Physics& physics,
               ObservationWriter& writer) const override {
    writer.Array("joints", physics.QposFrom(kRootSize));
    writer.Array("to_target", NoseToTarget(physics));
    // for each link: velocity along x and y, angular velocity around z
    writer.Begin("body_velocities");
    const auto num_sensors = static_cast<int>(physics.model().nsensordata);
    for (int i = kFirstVelocity; i < num_sensors; i += kVelocitySize) {
      const double* link = physics.data().sensordata + i;
      for (const int component : {0, 1, 5}) writer.Append(link[component]);
    }
  }

  double Reward(const Physics& physics) const override {
    const double target_size = physics.model().geom_size[3 * target_];
    return Tolerance(Norm(NoseToTarget(physics)),
                     {.upper = target_size,
                      .margin = 5 * target_size,
                      .sigmoid = Sigmoid::kLongTail});
  }

 private:
  // x and y in the frame of the head.
  std::array<double, 2> NoseToTarget(const Physics& physics) const {
    const Vec3 v = ToFrame(
        Minus(physics.GeomPosition(target_), physics.GeomPosition(nose_)),
        physics.BodyMatrix(head_));
    return {v[0], v[1]};
  }

  int head_ = 0, nose_ = 0, target_ = 0, light_ = 0;
};

mjsSensor& AddSensor(mjSpec& spec, mjtSensor type, const std::string& name,
                     const std::string& site) {
  mjsSensor* sensor = mjs_addSensor(&spec);
  SetName(sensor->element, name);
  sensor->type = type;
  sensor->objtype = mjOBJ_SITE;
  mjs_setString(sensor->objname, site.c_str());
  return *sensor;
}

// Appends links behind the head until there are `num_links`, each with a motor
// and velocity sensors, and moves the tracking cameras away.
void AddLinks(mjSpec& spec, int num_links) {
  const mjsDefault* swimmer = FindDefault(spec, "swimmer");
  const mjsDefault* visual = FindDefault(spec, "visual");
  const mjsDefault* inertial = FindDefault(spec, "inertial");
  mjsBody* parent = &FindBody(spec, "head");
  for (int i = 0; i < num_links - 1; ++i) {
    const std::string number = std::to_string(i);
    mjsBody* link = mjs_addBody(parent, swimmer);
    SetName(link->element, "segment_" + number);
    link->pos[1] = 0.1;
    SetName(mjs_addGeom(link, visual)->element, "visual_" + number);
    SetName(mjs_addGeom(link, inertial)->element, "inertial_" + number);
    SetName(mjs_addSite(link, swimmer)->element, "site_" + number);
    mjsJoint* joint = mjs_addJoint(link, swimmer);
    SetName(joint->element, "joint_" + number);
    joint->range[0] = -360.0 / num_links;  // degrees, the model's unit
    joint->range[1] = 360.0 / num_links;
    parent = link;

    mjsActuator* motor = mjs_addActuator(&spec, mjs_getSpecDefault(&spec));
    SetName(motor->element, "motor_" + number);
    mjs_setToMotor(motor);
    motor->trntype = mjTRN_JOINT;
    mjs_setString(motor->target, ("joint_" + number).c_str());
    AddSensor(spec, mjSENS_VELOCIMETER, "velocimeter_" + number,
              "site_" + number);
    AddSensor(spec, mjSENS_GYRO, "gyro_" + number, "site_" + number);
  }

  for (const char* name : {"tracking1", "tracking2"}) {
    mjsCamera* camera = mjs_asCamera(&FindElement(spec, mjOBJ_CAMERA, name));
    for (double& coordinate : camera->pos) coordinate *= num_links / 6.0;
  }
}

TaskDefinition Define(const char* name, int num_links) {
  return {.name = name,
          .model = "swimmer.xml",
          .options = {.time_limit_s = 30.0, .control_timestep_s = 0.03},
          .edit = [num_links](mjSpec& spec) { AddLinks(spec, num_links); },
          .make_task = TaskMaker<Swimmer>()};
}

}  // namespace

std::vector<TaskDefinition> SwimmerTasks() {
  return {Define("swimmer-swimmer6", 6), Define("swimmer-swimmer15", 15)};
}

}  // namespace replicant::env
