#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/process.h"
#include "core/rpc/heartbeat.h"

namespace replicant::fleet {

// The launcher of a run, as an agent finds it.
struct LauncherAddress {
  std::string endpoint;            // "tcp://10.0.0.2:7100"
  std::filesystem::path key_file;  // of the run's key pair; empty: none
};

struct HostAgentOptions {
  // Finds the launcher; called before each attempt to join, since the next
  // launcher of a run may listen somewhere else. Throws IoError while there is
  // none.
  std::function<LauncherAddress()> find_launcher;
  // Whether the address never changes. A launcher there that refuses the key is
  // then an error, and otherwise another process at an old address.
  bool is_launcher_fixed = true;
  // Whether the run has ended, so that no launcher will come.
  std::function<bool()> is_over = [] { return false; };
  // The command of a role, whose files lie in `folder`.
  std::function<std::vector<std::string>(const rpc::RoleId& id,
                                         const std::filesystem::path& folder)>
      make_command;
  std::string host;            // name for people
  std::string role = "actor";  // that it runs processes of
  uint32_t slots = 0;  // maximum number of processes; 0: by the processors
  // How long a host without a launcher looks for one.
  Clock::Duration join_timeout = std::chrono::seconds(600);
  // How long processes that have to end may drain.
  Clock::Duration drain_timeout = std::chrono::seconds(5);
  // The agent ends with this input, at once: whoever holds the other end lives
  // no longer. -1: none.
  int lease_fd = -1;
};

// Runs processes of a run on this host for its launcher (fleet/host_pool.h):
// joins, keeps the files that the launcher sends in a folder of its own (mode
// 0700, the key 0600), carries out its orders and sends the logs. No process
// outlives the function, nor this process.
//
// An agent that gets no answer for the time that the launcher has named ends
// its processes and looks for the launcher anew. A signal drains the processes,
// and the launcher is told that the host leaves.
//
// An agent whose launcher is silent joins the next one as soon as that has
// announced another address.
//
// Returns when the run is over, on a signal, at the end of the lease, or once
// no launcher was found for join_timeout; false in the last case. Throws
// CommError if a launcher at a fixed address refuses the key.
//
// Call it from main(): the processes die with the calling thread.
bool RunHostAgent(const HostAgentOptions& options, const StopSignal& stop);

}  // namespace replicant::fleet
