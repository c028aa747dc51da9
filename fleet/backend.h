#pragma once

#include <memory>
#include <optional>

#include "core/base/process.h"
#include "fleet/role.h"

namespace replicant::fleet {

// A process that a backend has started. It never outlives this object.
//
// Thread-safety: one thread, the one that started it.
class RoleProcess {
 public:
  virtual ~RoleProcess() = default;

  // How it ended; std::nullopt while it runs. Does not wait.
  virtual std::optional<ExitStatus> Poll() = 0;
  // SIGTERM asks it to drain, SIGKILL ends it. No effect once it has ended.
  virtual void Signal(int signal_number) = 0;
  // Readable when it has ended, for poll(); -1 if there is no such thing.
  virtual int fd() const = 0;
};

// Where processes run: this machine, other hosts, a batch system.
class Backend {
 public:
  virtual ~Backend() = default;

  // Starts `options.command`, with its output in `options.stdout_file`.
  // Throws IoError, and nothing runs, if that cannot be done.
  virtual std::unique_ptr<RoleProcess> Start(const RoleSpec& spec,
                                             const ProcessOptions& options) = 0;
};

}  // namespace replicant::fleet
