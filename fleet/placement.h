#pragma once

#include <string>
#include <vector>

#include "base/thread.h"
#include "fleet/cpu_topology.h"
#include "fleet/processor_claims.h"
#include "fleet/protocol/heartbeat.h"

namespace replicant::fleet {

// Processors that a role needs.
struct RoleRequest {
  RoleId id;
  // Threads that compute. 0, for exclusive roles only: an equal share of the
  // processors that the other roles leave.
  int threads = 1;
  // Share of a processor that each thread keeps busy.
  double load = 1.0;
  // Whether the role gets processors to itself, if there are enough.
  bool is_exclusive = false;
};

struct PlacedRole {
  RoleRequest request;
  // The role should run one thread per processor. Empty: it is not bound.
  CpuSet cpus;
};

// Assigns processors to every role.
//
// Only the best n = topology.NumUsable() processors are used. Exclusive roles
// choose first, in the order of the requests. Each leaves at least one
// processor for every later exclusive role and one for all shared roles
// together, if there are any. If that is impossible, exclusive roles share like
// the others. Every other role, in order, takes the processors with the least
// load so far, and the better of two equals. On 2 processors the learner thus
// gets one, and replay, actors and evaluator share the other.
//
// The result is in the order of the requests. Throws InvalidArgument for
// threads < 0, and for 0 threads of a role that is not exclusive.
std::vector<PlacedRole> Place(const CpuTopology& topology,
                              const std::vector<RoleRequest>& requests);

// Assigns processors as above, but only among those that no other fleet has
// claimed, and claims the assigned ones. If without other fleets more of the
// requested threads would get a processor to themselves, binds no role: the
// kernel then shares all processors among the fleets. Throws IoError as
// ProcessorClaims does.
std::vector<PlacedRole> PlaceBesideOthers(
    const CpuTopology& topology, const std::vector<RoleRequest>& requests,
    ProcessorClaims* claims);

// The placement as a printed table of several lines.
std::string PlacementTable(const CpuTopology& topology,
                           const std::vector<PlacedRole>& placed);

}  // namespace replicant::fleet
