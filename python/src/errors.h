#pragma once

#include <nanobind/nanobind.h>

namespace replicant::python {

// Turns the exceptions of core/base/error.h into those of replicant.errors with
// the same message. Every module calls it once, in its body.
void RegisterErrors(nanobind::module_& module);

}  // namespace replicant::python
