#pragma once

#include <nanobind/nanobind.h>

namespace replicant::python {

// Binds Physics, a PhysicsView.
void BindPhysics(nanobind::module_& module);

}  // namespace replicant::python
