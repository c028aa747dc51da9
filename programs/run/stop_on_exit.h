#pragma once

#include "base/rpc/server.h"

namespace replicant::programs {

// Ends the server's loop before the thread that runs it is joined.
struct StopOnExit {
  rpc::Server& server;
  ~StopOnExit() { server.Stop(); }
};

}  // namespace replicant::programs
