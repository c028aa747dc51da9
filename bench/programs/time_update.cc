#include "bench/programs/time_update.h"

#include <algorithm>
#include <functional>
#include <thread>

namespace replicant::learner {
namespace {

using Clock = std::chrono::steady_clock;

double MillisecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin)
      .count();
}

// Adds the times of runs as in a training, one after the other.
void TakeTurn(const std::function<void()>& run, std::vector<double>* times) {
  std::this_thread::sleep_for(kRest);
  run();  // wakes its threads
  const auto begin = Clock::now();
  do {
    const auto start = Clock::now();
    run();
    times->push_back(MillisecondsSince(start));
  } while (Clock::now() - begin < kTurn);
}

}  // namespace

UpdateTimes TimeUpdate(StepAlone& step, StoredUpdate& update, double seconds) {
  UpdateTimes times;
  const double waited_s = update.wait_seconds();
  const int64_t num_sent = update.num_sent();
  int64_t num_updates = 0;
  const auto begin = Clock::now();
  do {
    TakeTurn([&] { step.Run(); }, &times.alone);
    TakeTurn(
        [&] {
          update.Run();
          ++num_updates;
        },
        &times.updates);
  } while (MillisecondsSince(begin) < 1e3 * seconds);
  const auto count = static_cast<double>(num_updates);
  times.wait_ms = 1e3 * (update.wait_seconds() - waited_s) / count;
  times.sent_frames = static_cast<double>(update.num_sent() - num_sent) / count;
  std::ranges::sort(times.alone);
  std::ranges::sort(times.updates);
  return times;
}

}  // namespace replicant::learner
