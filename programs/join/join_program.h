#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/config/command_line.h"
#include "fleet/host_launcher.h"
#include "fleet/protocol/agent_messages.h"
#include "fleet/protocol/heartbeat.h"
#include "programs/run/commands.h"
#include "programs/run/registry.h"
#include "programs/run/run_config.h"

// Programs of hosts that join a run.
namespace replicant::programs {

// Adds --join to the fleet's help.
void AddJoin(config::CommandLine& command_line);

// Offers this host to a running fleet and runs its actors:
//
//   --join RUN [OPTIONS]               the run's folder, which this host sees
//   --join tcp://HOST:PORT --key_file FILE [OPTIONS]
//   --join -                           both on the standard input, with which
//                                      it ends (fleet/host_launcher.h)
//   --host NAME                        in logs and status, another one for each
//                                      agent; the host's own name and a number
//   --actors N                         maximum; 0: by the processors
//   --role replay                      runs the replay instead of actors; with
//                                      replay-N its shard N
//   --keep FOLDER                      for the replay's checkpoints; without it
//                                      they are lost with the agent
//   --join_timeout_s S                 maximum time without a launcher
//
// Returns the exit code, or nothing for a command line without --join. An agent
// that has joined by an address ends with 1 after a SIGTERM: pods do so. Throws
// ConfigError for one that is wrong.
std::optional<int> JoinRun(int argc, const char* const* argv,
                           const Registry& registry, const Commands& commands);

// The command of a role on a host that has joined. `files` holds the run's
// files that the launcher sends; `keep` is the folder of --keep; empty: none.
// Throws ConfigError and IoError.
std::vector<std::string> JoinedCommand(const fleet::RoleId& id,
                                       const std::filesystem::path& files,
                                       const std::filesystem::path& keep,
                                       const Registry& registry,
                                       const Commands& commands);

// The files that agents of other hosts need of the run in `run`, except its
// key, which they have: `config_file` as config.yaml, the addresses and the
// model. Throws IoError, and ConfigError if they are more than agents take.
std::vector<fleet::AgentFile> FilesForHosts(
    const std::filesystem::path& run, const std::filesystem::path& config_file);

// The agents that the launcher starts under ssh: one for the actors of each
// host, and one for each shard of the replay. It writes its address and key to
// the standard input of their commands.
std::vector<fleet::HostLauncher::Host> LaunchedAgents(const RunConfig& config,
                                                      const Commands& commands);

}  // namespace replicant::programs
