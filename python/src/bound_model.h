#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "env/renderer/scene.h"

namespace replicant::python {

// What drawing needs of a `mujoco.MjModel` of another version of MuJoCo, in
// this build's layout. All numbers are copied through the names of MuJoCo's
// bindings, so that no layout but this build's is ever assumed.
//
// Thread-safety: const methods may run concurrently; the constructor needs the
// GIL.
class BoundModel {
 public:
  // Throws UnsupportedScene if this version's models lack a needed name, or
  // have it with another size.
  explicit BoundModel(const nanobind::object& model);
  BoundModel(const BoundModel&) = delete;
  BoundModel& operator=(const BoundModel&) = delete;

  const mjModel& get() const { return model_; }

 private:
  template <typename T>
  void Copy(const nanobind::object& model, const char* name, int64_t count,
            T*& field);

  mjModel model_{};
  std::vector<std::unique_ptr<std::byte[]>> memory_;
};

// The same for a `mujoco.MjvScene`.
class BoundScene {
 public:
  BoundScene() = default;
  BoundScene(const BoundScene&) = delete;
  BoundScene& operator=(const BoundScene&) = delete;

  // Copies the scene; the result is valid until the next call. Needs the GIL.
  // Throws UnsupportedScene as BoundModel().
  const mjvScene& Take(const nanobind::object& scene);

 private:
  mjvScene scene_{};
  std::vector<mjvGeom> geoms_;
  std::vector<std::vector<std::byte>> memory_;
};

}  // namespace replicant::python
