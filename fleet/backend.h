#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/process.h"
#include "fleet/role.h"

namespace replicant::fleet {

// A process started by a backend. It never outlives this object.
//
// Thread-safety: only the thread that started it.
class RoleProcess {
 public:
  virtual ~RoleProcess() = default;

  // The exit status; std::nullopt while the process runs. Does not wait.
  virtual std::optional<ExitStatus> Poll() = 0;
  // Sends a signal: SIGTERM asks the process to drain, SIGKILL ends it. No
  // effect once it has ended.
  virtual void Signal(int signal_number) = 0;
  // Descriptor that turns readable when the process ends, for poll(); -1: none.
  virtual int fd() const = 0;
  // Whether reports about the process can arrive. While its host is silent, the
  // process's own silence says nothing.
  virtual bool IsReachable() const { return true; }
  // After the end of the process: whether its host was lost or left. Such an
  // end does not count as a failure of the process.
  virtual bool IsLost() const { return false; }
  // The host that runs the process; empty: this one.
  virtual std::string host() const { return {}; }
};

// Starts processes on this machine, on other hosts or in a batch system.
class Backend {
 public:
  virtual ~Backend() = default;

  // Whether some host can start the role now.
  virtual bool HasRoom(const RoleSpec& /*spec*/) const { return true; }
  // Starts `options.command` with its output in `options.stdout_file`, as
  // process number `incarnation` of the role. Returns null if no host has room
  // any more: one may leave after HasRoom(). If the start fails, throws IoError
  // and leaves no process.
  virtual std::unique_ptr<RoleProcess> Start(const RoleSpec& spec,
                                             uint32_t incarnation,
                                             const ProcessOptions& options) = 0;
};

}  // namespace replicant::fleet
