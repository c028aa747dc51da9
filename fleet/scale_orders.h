#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "base/mutex.h"
#include "fleet/protocol/agent_messages.h"
#include "fleet/role.h"
#include "fleet/supervisor.h"

namespace replicant::fleet {

// A role whose number of processes may change while the run goes on.
struct ScalableRole {
  int64_t count = 0;  // at the start
  // The largest number, and its reason, for a refusal.
  int64_t max_count = 0;
  std::string why_no_more = {};
  // Describes process `index` of `count`.
  std::function<RoleSpec(uint32_t index, int64_t count)> make;
  // Keeps the number for a resumed run. Does not wait for a disk.
  std::function<void(int64_t count)> keep;
};

// Requests to change the number of processes of a role: Take() answers on the
// server's thread, CarryOut() acts on the fleet's. Of several requests for one
// role between two calls of CarryOut() the last one counts.
//
// Thread-safety: Take() and CarryOut() may run concurrently.
class ScaleOrders {
 public:
  // `roles` outlives this object. `num_processes` of all roles run at first.
  // Throws ConfigError, naming actors.count, if the limit of open files is too
  // low for them.
  ScaleOrders(const std::map<std::string, ScalableRole>* roles,
              int64_t num_processes);

  // Refuses another role, a number outside [1, max_count], and one for which
  // the limit of open files is too low.
  ScaleReply Take(const ScaleRequest& request) EXCLUDES(mutex_);
  void CarryOut(Supervisor* supervisor) EXCLUDES(mutex_);

 private:
  const std::map<std::string, ScalableRole>& roles_;
  Mutex mutex_;
  int64_t num_processes_ GUARDED_BY(mutex_);
  std::map<std::string, int64_t> counts_ GUARDED_BY(mutex_);
  std::map<std::string, ScaleRequest> wanted_ GUARDED_BY(mutex_);
};

}  // namespace replicant::fleet
