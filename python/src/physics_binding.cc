#include "python/src/physics_binding.h"

#include <fmt/format.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "base/error.h"
#include "python/src/python_task.h"

namespace replicant::python {
namespace nb = nanobind;
using nb::literals::operator""_a;
namespace {

using ConstVector =
    nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// A new NumPy array with these rows of `columns` numbers; 0: one dimension.
nb::object CopyOf(std::span<const double> values, int64_t columns = 0) {
  const nb::module_ numpy = nb::module_::import_("numpy");
  const auto size = static_cast<int64_t>(values.size());
  const nb::tuple shape = columns == 0
                              ? nb::make_tuple(size)
                              : nb::make_tuple(size / columns, columns);
  const nb::object array = numpy.attr("empty")(shape, "float64");
  const auto view = nb::cast<nb::ndarray<double, nb::c_contig>>(array);
  std::copy(values.begin(), values.end(), view.data());
  return array;
}

// Sets what NumPy takes as a row of numbers: an array, a list or a number.
void Assign(const nb::object& given, std::span<double> target,
            const char* name) {
  ConstVector values;
  bool is_row = false;
  try {
    const nb::module_ numpy = nb::module_::import_("numpy");
    // None would be NaN
    is_row =
        !given.is_none() &&
        nb::try_cast(numpy.attr("ascontiguousarray")(given, "float64"), values);
  } catch (const nb::python_error&) {
    // no numbers, or rows of different lengths
  }
  if (!is_row) {
    const auto text = nb::cast<std::string>(nb::repr(given));
    throw InvalidArgument(fmt::format("physics.{}: got {:.80}, want {} numbers",
                                      name, text, target.size()));
  }
  if (values.size() != target.size()) {
    throw InvalidArgument(fmt::format("physics.{}: got {} numbers, want {}",
                                      name, values.size(), target.size()));
  }
  std::copy_n(values.data(), values.size(), target.begin());
}

std::span<double> Numbers(double* data, int64_t count) {
  return {data, static_cast<size_t>(count)};
}

// Index and number of a joint's positions or velocities.
std::span<double> JointPosition(env::Physics& physics,
                                const std::string& name) {
  const int id = physics.JointId(name);
  const int type = physics.model().jnt_type[id];
  const int count = type == mjJNT_FREE ? 7 : type == mjJNT_BALL ? 4 : 1;
  return Numbers(physics.mutable_data().qpos + physics.QposAddress(name),
                 count);
}

std::span<double> JointVelocity(env::Physics& physics,
                                const std::string& name) {
  const int id = physics.JointId(name);
  const int type = physics.model().jnt_type[id];
  const int count = type == mjJNT_FREE ? 6 : type == mjJNT_BALL ? 3 : 1;
  return Numbers(physics.mutable_data().qvel + physics.DofAddress(name), count);
}

std::span<const double> Sensor(const env::Physics& physics,
                               const std::string& name) {
  const int id = physics.Id(mjOBJ_SENSOR, name);
  return physics.Sensor(physics.model().sensor_adr[id],
                        physics.model().sensor_dim[id]);
}

std::span<double> Activations(env::Physics& physics) {
  return Numbers(physics.mutable_data().act, physics.model().na);
}

// Starts from a keyframe of the model, given by name or number.
void SetKeyframe(env::Physics& physics, const nb::object& key) {
  int id = -1;
  if (std::string name; nb::try_cast(key, name)) {
    id = physics.Id(mjOBJ_KEY, name);
  } else if (!nb::try_cast(key, id) || id < 0 || id >= physics.model().nkey) {
    throw InvalidArgument(fmt::format(
        "{}: keyframe {} given; the model has {}", physics.name(),
        nb::cast<std::string>(nb::repr(key)), physics.model().nkey));
  }
  mj_resetDataKeyframe(&physics.model(), &physics.mutable_data(), id);
}

// The position or orientation of a mocap body: `columns` numbers of `all`.
std::span<double> OfMocapBody(const env::Physics& physics,
                              const std::string& name, double* all,
                              int columns) {
  const int id = physics.model().body_mocapid[physics.BodyId(name)];
  if (id < 0) {
    throw InvalidArgument(fmt::format("{}: body '{}' has no mocap=\"true\"",
                                      physics.name(), name));
  }
  return Numbers(all + columns * id, columns);
}

}  // namespace

void BindPhysics(nb::module_& module) {
  nb::class_<PhysicsView>(
      module, "Physics",
      "A MuJoCo simulation as a task's functions see it. Every array is a "
      "copy, "
      "float64.\n\nUnits are the model's: metres, seconds and radians in the "
      "Control Suite.")
      .def_prop_ro("time_s", [](PhysicsView& p) { return p.get().data().time; })
      .def_prop_ro("timestep_s",
                   [](PhysicsView& p) { return p.get().timestep_s(); })
      .def_prop_rw(
          "qpos", [](PhysicsView& p) { return CopyOf(p.get().qpos()); },
          [](PhysicsView& p, const nb::object& v) {
            Assign(v, p.get().mutable_qpos(), "qpos");
          },
          nb::for_setter(nb::arg("value").none()), "Positions [nq].")
      .def_prop_rw(
          "qvel", [](PhysicsView& p) { return CopyOf(p.get().qvel()); },
          [](PhysicsView& p, const nb::object& v) {
            Assign(v, p.get().mutable_qvel(), "qvel");
          },
          nb::for_setter(nb::arg("value").none()), "Velocities [nv].")
      .def_prop_rw(
          "act", [](PhysicsView& p) { return CopyOf(p.get().act()); },
          [](PhysicsView& p, const nb::object& v) {
            Assign(v, Activations(p.get()), "act");
          },
          nb::for_setter(nb::arg("value").none()),
          "Activations of actuators [na].")
      .def(
          "set_keyframe",
          [](PhysicsView& p, const nb::object& key) {
            SetKeyframe(p.get(), key);
          },
          "key"_a,
          "Sets the whole state to a keyframe of the model, given by name or "
          "number: for initialize().")
      .def(
          "mocap_position",
          [](PhysicsView& p, const std::string& name) {
            return CopyOf(OfMocapBody(p.get(), name,
                                      p.get().mutable_data().mocap_pos, 3));
          },
          "name"_a, "World position of a mocap body [3].")
      .def(
          "set_mocap_position",
          [](PhysicsView& p, const std::string& name, const nb::object& v) {
            Assign(
                v,
                OfMocapBody(p.get(), name, p.get().mutable_data().mocap_pos, 3),
                name.c_str());
          },
          "name"_a, "position"_a.none())
      .def(
          "mocap_quaternion",
          [](PhysicsView& p, const std::string& name) {
            return CopyOf(OfMocapBody(p.get(), name,
                                      p.get().mutable_data().mocap_quat, 4));
          },
          "name"_a, "Orientation of a mocap body [4], w first.")
      .def(
          "set_mocap_quaternion",
          [](PhysicsView& p, const std::string& name, const nb::object& v) {
            Assign(v,
                   OfMocapBody(p.get(), name, p.get().mutable_data().mocap_quat,
                               4),
                   name.c_str());
          },
          "name"_a, "quaternion"_a.none())
      .def(
          "tendon_length",
          [](PhysicsView& p, const std::string& name) {
            return p.get().data().ten_length[p.get().Id(mjOBJ_TENDON, name)];
          },
          "name"_a)
      .def(
          "tendon_velocity",
          [](PhysicsView& p, const std::string& name) {
            return p.get().data().ten_velocity[p.get().Id(mjOBJ_TENDON, name)];
          },
          "name"_a)
      .def_prop_ro(
          "ctrl", [](PhysicsView& p) { return CopyOf(p.get().ctrl()); },
          "Controls [nu].")
      .def_prop_ro(
          "sensordata",
          [](PhysicsView& p) {
            return CopyOf(p.get().Sensor(
                0, static_cast<int>(p.get().model().nsensordata)));
          },
          "Readings of all sensors.")
      .def(
          "body_position",
          [](PhysicsView& p, const std::string& name) {
            return CopyOf(p.get().BodyPosition(p.get().BodyId(name)));
          },
          "name"_a, "World position of a body [3].")
      .def(
          "body_matrix",
          [](PhysicsView& p, const std::string& name) {
            return CopyOf(p.get().BodyMatrix(p.get().BodyId(name)), 3);
          },
          "name"_a, "Rotation of a body, body to world [3, 3].")
      .def(
          "geom_position",
          [](PhysicsView& p, const std::string& name) {
            return CopyOf(p.get().GeomPosition(p.get().GeomId(name)));
          },
          "name"_a, "World position of a geom [3].")
      .def(
          "site_position",
          [](PhysicsView& p, const std::string& name) {
            return CopyOf(p.get().SitePosition(p.get().SiteId(name)));
          },
          "name"_a, "World position of a site [3].")
      .def(
          "sensor",
          [](PhysicsView& p, const std::string& name) {
            return CopyOf(Sensor(p.get(), name));
          },
          "name"_a, "Reading of a sensor.")
      .def(
          "joint_position",
          [](PhysicsView& p, const std::string& name) {
            return CopyOf(JointPosition(p.get(), name));
          },
          "name"_a, "Positions of a joint: [1]; ball [4]; free [7].")
      .def(
          "joint_velocity",
          [](PhysicsView& p, const std::string& name) {
            return CopyOf(JointVelocity(p.get(), name));
          },
          "name"_a, "Velocities of a joint: [1]; ball [3]; free [6].")
      .def(
          "set_joint_position",
          [](PhysicsView& p, const std::string& name, const nb::object& v) {
            Assign(v, JointPosition(p.get(), name), name.c_str());
          },
          "name"_a, "position"_a.none())
      .def(
          "set_joint_velocity",
          [](PhysicsView& p, const std::string& name, const nb::object& v) {
            Assign(v, JointVelocity(p.get(), name), name.c_str());
          },
          "name"_a, "velocity"_a.none());
}

}  // namespace replicant::python
