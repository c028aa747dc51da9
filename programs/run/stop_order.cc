#include "programs/run/stop_order.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <thread>

#include "base/clock.h"

namespace replicant::programs {

int ExitCodeOfStop(const fleet::HeartbeatSenderOptions& options,
                   const fleet::HeartbeatSender& heartbeat) {
  using namespace std::chrono_literals;
  if (options.endpoint.empty()) return 0;
  const Clock::TimePoint deadline = Clock::Real().Now() + 3s;
  while (!heartbeat.StopOrder()) {
    if (Clock::Real().Now() >= deadline) {
      spdlog::error("stopped by a signal that is not the supervisor's");
      return 1;
    }
    std::this_thread::sleep_for(10ms);
  }
  return 0;
}

}  // namespace replicant::programs
