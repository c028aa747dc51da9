#pragma once

#include "programs/run/invocation.h"

namespace replicant::programs {

// Makes the launcher: it starts, watches, restarts and stops the programs of a
// run, and prints a summary at the end.
Program FleetProgram();

}  // namespace replicant::programs
