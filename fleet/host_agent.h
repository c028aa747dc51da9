#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/process.h"
#include "fleet/protocol/heartbeat.h"

namespace replicant::fleet {

// Address and key of a run's launcher.
struct LauncherAddress {
  std::string endpoint;            // "tcp://10.0.0.2:7100"
  std::filesystem::path key_file;  // of the run's key pair; empty: none
};

struct HostAgentOptions {
  // Finds the launcher. Called before each attempt to join, since the run's
  // next launcher may listen at another address. An IoError says that there is
  // no launcher yet; so does any exception unless is_launcher_fixed.
  std::function<LauncherAddress()> find_launcher;
  // Whether address and key never change. If they never change, it is an error
  // if the launcher refuses the key, or if the address needs a key and there is
  // none; otherwise the agent looks again, since it may have seen another
  // process at an old address, or files of a run that is about to start.
  bool is_launcher_fixed = true;
  // Whether the run has ended and no launcher will follow. An exception says
  // that it has not.
  std::function<bool()> is_over = [] { return false; };
  // The command of a role; `folder` holds its files.
  std::function<std::vector<std::string>(const RoleId& id,
                                         const std::filesystem::path& folder)>
      make_command;
  std::string host;            // name for people
  std::string role = "actor";  // role of its processes
  uint32_t slots = 0;  // maximum number of processes; 0: by the processors
  // Maximum time to look for a launcher.
  Clock::Duration join_timeout = std::chrono::seconds(600);
  // Time for processes to drain before they are killed.
  Clock::Duration drain_timeout = std::chrono::seconds(5);
  // The agent stops at once when this input ends, so it dies with the owner of
  // the other end. -1: none.
  int lease_fd = -1;
};

// Runs processes of a run on this host for its launcher (fleet/host_pool.h):
// joins, keeps the files that the launcher sends in a private folder (mode
// 0700, the key 0600), carries out orders and sends the logs. Every process
// ends before the function returns, and with this process.
//
// If the launcher stays silent for longer than the timeout it has set, the
// agent ends its processes and looks for a launcher again. After a signal the
// agent drains its processes and tells the launcher that the host leaves.
//
// While its launcher is silent, the agent joins the next launcher as soon as
// another address is announced.
//
// Returns when the run is over, on a signal, at the end of the lease, or once
// no launcher was found for join_timeout; false if none was found. With a fixed
// launcher, throws CommError if it refuses the key, and InvalidArgument if its
// address needs one.
//
// Call it from main(): the processes die with the calling thread.
bool RunHostAgent(const HostAgentOptions& options, const StopSignal& stop);

}  // namespace replicant::fleet
