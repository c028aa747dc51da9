#pragma once

#include <nanobind/nanobind.h>

namespace replicant::python {

// What every module calls first, in its body. Turns the exceptions of
// core/base/error.h into those of replicant.errors with the same message, and
// logs warnings on stderr.
void SetUpModule();

}  // namespace replicant::python
