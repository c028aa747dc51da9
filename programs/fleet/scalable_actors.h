#pragma once

#include <vector>

#include "fleet/placement.h"
#include "fleet/run_folder.h"
#include "fleet/scale_orders.h"
#include "programs/roles/fleet_roles.h"

namespace replicant::programs {

// How `fleet --scale` changes the number of actors of a run. Further actors run
// on the hosts that join, or share the processors of the `placed` ones. A
// resumed run has the number of the last request. All arguments outlive the
// result but `placed`. Throws IoError if the folder's configuration cannot be
// read.
fleet::ScalableRole ScalableActors(const RolePlan& plan,
                                   const std::vector<fleet::PlacedRole>& placed,
                                   fleet::RunFolder* folder);

}  // namespace replicant::programs
