#pragma once

#include "core/rpc/heartbeat_sender.h"

namespace replicant::programs {

// Returns the exit code of a role that was asked to stop before it had done its
// part: 0 if the supervisor asked or there is no supervisor; 1 if somebody else
// asked, so that the supervisor restarts the role instead of taking the run for
// complete. Waits up to 3 s for the supervisor's order, which comes in the
// answer to a heartbeat. `options` are those of `heartbeat`.
int ExitCodeOfStop(const rpc::HeartbeatSenderOptions& options,
                   const rpc::HeartbeatSender& heartbeat);

}  // namespace replicant::programs
