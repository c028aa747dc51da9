#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/base/process.h"
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
  // Whether news of the process can come. While its host is silent, its own
  // silence says nothing.
  virtual bool IsReachable() const { return true; }
  // Once it has ended: whether its host was lost or has left, which is no
  // failure of the process.
  virtual bool IsLost() const { return false; }
  // The host that it runs on; empty: this one.
  virtual std::string host() const { return {}; }
};

// Starts processes on this machine, on other hosts or in a batch system.
class Backend {
 public:
  virtual ~Backend() = default;

  // Whether there is a host that the role can be started on now.
  virtual bool HasRoom(const RoleSpec& /*spec*/) const { return true; }
  // Starts `options.command` with its output in `options.stdout_file`, as the
  // role's process number `incarnation`. Throws IoError if it cannot be
  // started; nothing runs then.
  virtual std::unique_ptr<RoleProcess> Start(const RoleSpec& spec,
                                             uint32_t incarnation,
                                             const ProcessOptions& options) = 0;
};

}  // namespace replicant::fleet
