#include "base/rpc/zmq_call.h"

#include <fmt/format.h>

#include "base/error.h"

namespace replicant::rpc::internal {

int CheckZmq(int result, const char* expression, const char* file, int line) {
  if (result != -1) return result;
  throw CommError(fmt::format("{}:{}: {}: {}", file, line, expression,
                              zmq_strerror(zmq_errno())));
}

}  // namespace replicant::rpc::internal
