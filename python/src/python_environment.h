#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "env/task_registry.h"

namespace replicant::python {

// A task whose environments are written in Python: `make_adapter` returns a
// replicant._adapter.Adapter. They are used with the GIL, from any thread, and
// have no physics. Episode e of environment i begins with reset(seed) of a
// number that depends on the run's seed, i and e alone. Each adapter is closed
// once, with its environment.
//
// What Python raises becomes an Error with the traceback; the package's own
// ConfigError and InvalidArgument stay what they are. The message names
// environment, episode and step.
env::TaskDefinition DefinePythonEnvironment(std::string name,
                                            nanobind::object make_adapter);

}  // namespace replicant::python
