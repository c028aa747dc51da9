#pragma once

#include "programs/program.h"

namespace replicant::programs {

// Makes the launcher: it starts, watches, restarts and stops the programs of a
// run on this machine, and says at the end what the run came to.
Program FleetProgram();

}  // namespace replicant::programs
