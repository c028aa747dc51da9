#pragma once

#include <memory>
#include <optional>

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
};

// Starts processes on this machine, on other hosts or in a batch system.
class Backend {
 public:
  virtual ~Backend() = default;

  // Starts `options.command` with its output in `options.stdout_file`. Throws
  // IoError if it cannot be started; nothing runs then.
  virtual std::unique_ptr<RoleProcess> Start(const RoleSpec& spec,
                                             const ProcessOptions& options) = 0;
};

}  // namespace replicant::fleet
