#pragma once

#include <memory>

#include "fleet/backend.h"

namespace replicant::fleet {

// Processes on this machine, restricted to the processors of their role. The
// kernel kills them when the thread that started them ends.
class LocalBackend : public Backend {
 public:
  std::unique_ptr<RoleProcess> Start(const RoleSpec& spec, uint32_t incarnation,
                                     const ProcessOptions& options) override;
};

}  // namespace replicant::fleet
