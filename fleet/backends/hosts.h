#pragma once

#include <memory>

#include "fleet/backends/local.h"
#include "fleet/host_pool.h"

namespace replicant::fleet {

// Remote roles on the hosts of a pool, all others on this machine.
class HostsBackend : public Backend {
 public:
  // `pool` must outlive the backend and its processes.
  explicit HostsBackend(HostPool* pool) : pool_(*pool) {}

  bool HasRoom(const RoleSpec& spec) const override;
  std::unique_ptr<RoleProcess> Start(const RoleSpec& spec, uint32_t incarnation,
                                     const ProcessOptions& options) override;

 private:
  HostPool& pool_;
  LocalBackend local_;
};

}  // namespace replicant::fleet
