#include "base/check.h"

#include <spdlog/spdlog.h>

#include <cstdio>
#include <cstdlib>

namespace replicant::internal {

void CheckFailed(const char* expression, const char* file, int line,
                 const std::string& detail) {
  const std::string message = fmt::format("{}:{}: check failed: {}: {}", file,
                                          line, expression, detail);
  // stderr first: the logger itself may be broken
  std::fprintf(stderr, "%s\n", message.c_str());
  std::fflush(stderr);
  spdlog::critical("{}", message);
  spdlog::default_logger()->flush();
  std::abort();
}

}  // namespace replicant::internal
