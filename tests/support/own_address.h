#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <string>

namespace replicant::testing {

// Any port of a loopback address that is this process's own: a service that is
// started again finds its port free, whatever other tests run at the same time.
inline std::string OwnAddress() {
  const auto pid = static_cast<unsigned>(::getpid());
  return fmt::format("tcp://127.{}.{}.{}:*", 1 + pid / 65536 % 250,
                     pid / 256 % 256, pid % 256);
}

}  // namespace replicant::testing
