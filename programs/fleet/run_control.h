#pragma once

#include <optional>

#include "base/config/command_line.h"

// Commands for a running run, on any host that sees its folder:
//
//   fleet --status RUN                  what every role does
//   fleet --logs RUN [ROLE] [--follow]  the newest logs of its roles
//   fleet --stop RUN                    asks the fleet to end, and waits; from
//                                       another host if it lets hosts join
//   fleet --scale RUN actors=200        changes the number of actors
//
// ROLE is "actor" or "actor-3"; none: all roles.
namespace replicant::programs {

// Adds the options to --help.
void AddRunControl(config::CommandLine& command_line);

// Runs such a command and returns the exit code; returns nothing for any other
// command line. Throws ConfigError for unexpected words, and IoError if there
// is no such run or if it cannot be reached.
std::optional<int> ControlRun(int argc, const char* const* argv);

}  // namespace replicant::programs
