#pragma once

#include <nanobind/nanobind.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "env/physics.h"
#include "env/task_registry.h"

namespace replicant::python {

// A physics as Python functions of a task see it. Every getter copies, so that
// nothing in Python points into MuJoCo's memory.
//
// Thread-safety: for the task's functions only, one at a time by the GIL.
class PhysicsView {
 public:
  explicit PhysicsView(env::Physics* physics) : physics_(physics) {}

  // Marks the environment as gone: every later call throws InvalidArgument.
  void Detach() { physics_ = nullptr; }
  env::Physics& get() const;

 private:
  env::Physics* physics_;
};

// The functions of a task written in Python. `physics` is a PhysicsView, `rng`
// a numpy.random.Generator that depends on the seed, the environment and the
// episode alone.
struct TaskFunctions {
  // reward(physics) -> float
  nanobind::object reward;
  // observation(physics) -> {name: float or array}, always the same names and
  // shapes; None: position (qpos) and velocity (qvel)
  nanobind::object observation;
  // termination(physics) -> None, or the last discount of an episode that ends
  nanobind::object termination;
  // initialize(physics, rng) sets the start of an episode; None: the model's
  // default pose
  nanobind::object initialize;
};

struct PythonTaskDefinition {
  // its tasks call `functions` with the GIL, from any thread
  env::TaskDefinition definition;
  // for Python's garbage collector
  std::shared_ptr<TaskFunctions> functions;
};
// The model is the file `mjcf`, or `mjcf_text` unless that is empty.
PythonTaskDefinition DefinePythonTask(std::string name,
                                      std::filesystem::path mjcf,
                                      std::string mjcf_text,
                                      const env::ControlOptions& options,
                                      TaskFunctions functions);

}  // namespace replicant::python
