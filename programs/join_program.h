#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/config/command_line.h"
#include "programs/commands.h"
#include "programs/registry.h"
#include "programs/run_config.h"

// Hosts that take part in a run.
namespace replicant::programs {

// Adds --join to the help of the fleet.
void AddJoin(config::CommandLine& command_line);

// Offers this host to a running fleet and runs its actors:
//
//   --join RUN [OPTIONS]               the run's folder, which this host sees
//   --join tcp://HOST:PORT --key_file FILE [OPTIONS]
//   --join -                           both on the standard input, with which
//                                      it ends (fleet/host_launcher.h)
//   --host NAME                        in logs and status, another one for each
//                                      agent; the host's own name and a number
//   --actors N                         at most; 0: by the processors
//   --role replay                      runs the replay in the place of actors
//   --keep FOLDER                      of the replay's checkpoints; without it
//                                      they end with the agent
//   --join_timeout_s S                 without a launcher for so long it ends
//
// Returns the exit code, or nothing for a command line without --join. Throws
// ConfigError for one that is wrong.
std::optional<int> JoinRun(int argc, const char* const* argv,
                           const Registry& registry, const Commands& commands);

// The command that starts the agent of a host for the launcher, which writes
// its address and key to the command's standard input.
std::vector<std::string> AgentCommand(const RunConfig& config,
                                      const fleet::HostConfig& host,
                                      const Commands& commands);

}  // namespace replicant::programs
