#pragma once

#include <zmq.h>

// Calls a function of libzmq that returns -1 on failure, and throws CommError
// with the expression, the place and the library's text for the error. The
// caller repeats a call that a signal has interrupted. Only for files of
// base/rpc: it includes the vendor's header.
#define ZMQ_CALL(expression)                                                \
  ::replicant::rpc::internal::CheckZmq((expression), #expression, __FILE__, \
                                       __LINE__)

namespace replicant::rpc::internal {

// Returns `result`, or throws if it is -1.
int CheckZmq(int result, const char* expression, const char* file, int line);

}  // namespace replicant::rpc::internal
