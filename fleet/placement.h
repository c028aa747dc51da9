#pragma once

#include <string>
#include <vector>

#include "core/base/thread.h"
#include "core/rpc/heartbeat.h"
#include "fleet/cpu_topology.h"

namespace replicant::fleet {

// What a role wants of the machine.
struct RoleRequest {
  rpc::RoleId id;
  // Threads that compute. 0 is for exclusive roles: what the others leave, in
  // equal parts.
  int threads = 1;
  // Part of a processor that each thread keeps busy.
  double load = 1.0;
  // Shares its processors with no other role, as long as there are others.
  bool is_exclusive = false;
};

struct PlacedRole {
  RoleRequest request;
  CpuSet cpus;  // never empty; the role should run as many threads
};

// Gives every role its processors.
//
// Of the best n = topology.NumUsable() processors, exclusive roles take theirs
// first, in the order of the requests, but leave at least one each to the
// exclusive ones behind them and, if there are other roles, one to these. Where
// there are too few even so, exclusive roles share as the others do.
// Each of the other roles, in order, takes the processors with the least load
// so far, the better one of equals. So on 2 processors a learner has one, and
// replay, actors and evaluator share the other.
//
// The result is in the order of the requests. Throws InvalidArgument for
// threads < 0, or 0 of a role that is not exclusive.
std::vector<PlacedRole> Place(const CpuTopology& topology,
                              const std::vector<RoleRequest>& requests);

// A table for people, several lines.
std::string PlacementTable(const CpuTopology& topology,
                           const std::vector<PlacedRole>& placed);

}  // namespace replicant::fleet
