#pragma once

#include <string>
#include <vector>

#include "programs/run/invocation.h"
#include "programs/run/registry.h"

namespace replicant::programs {

// The programs of this project.
std::vector<Program> AllPrograms();

// main() of a user's executable, which contains every program of a run: its
// first argument is the name of the program. Reads the command line and the
// configuration, sets up the log and returns the exit code of the program.
// --help and --print_config_docs print and return 0. An exception ends the
// program with one line on stderr, "NAME: MESSAGE", and 1. The fleet and its
// roles end with kExitConfig if the configuration is the cause: after a
// ConfigError or InvalidArgument; a role with kExitDevice after a DeviceError,
// and with kExitData after a NumericError.
int RunProgram(int argc, char** argv, const Registry& registry);

// The same for a program inside an interpreter. `command` holds the words that
// start the roles of a fleet, followed by the same arguments.
int RunProgram(int argc, char** argv, const Registry& registry,
               const std::vector<std::string>& command);

}  // namespace replicant::programs
