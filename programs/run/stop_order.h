#pragma once

#include "fleet/protocol/heartbeat_sender.h"

namespace replicant::programs {

// Returns the exit code of a role that was asked to stop before its work was
// done: 0 if the supervisor asked or there is none; 1 if the signal came from
// elsewhere, so that the supervisor restarts the role instead of counting the
// run as complete. Waits up to 3 s for the supervisor's order, which arrives in
// the answer to a heartbeat. `options` are the options of `heartbeat`.
int ExitCodeOfStop(const fleet::HeartbeatSenderOptions& options,
                   const fleet::HeartbeatSender& heartbeat);

}  // namespace replicant::programs
