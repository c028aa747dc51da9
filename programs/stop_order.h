#pragma once

#include "core/rpc/heartbeat_sender.h"

namespace replicant::programs {

// The exit code of a role that was asked to stop before it had done its part: 0
// if the supervisor has asked, or there is none; 1 if somebody else has, so
// that the supervisor starts it again rather than takes the run for complete.
// The supervisor's order comes with the answer to a heartbeat, and is waited
// for up to 3 s. `options` are those of `heartbeat`.
int ExitCodeOfStop(const rpc::HeartbeatSenderOptions& options,
                   const rpc::HeartbeatSender& heartbeat);

}  // namespace replicant::programs
