#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace replicant::replicator {

// The time that one replica waited in each of its calls, in the last run of its
// plan. In the order of the plan, which is the same for all replicas.
struct CallWait {
  bool is_bucket = false;
  double seconds = 0.0;
};
using CallWaits = std::vector<CallWait>;

// Records the waiting time of one kernel.
class WaitMeter {
 public:
  WaitMeter(std::shared_ptr<CallWaits> waits, bool is_bucket)
      : waits_(std::move(waits)), index_(waits_->size()) {
    waits_->push_back({.is_bucket = is_bucket});
  }

  // Runs `wait` and records its duration.
  template <typename Wait>
  void Measure(const Wait& wait) {
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    wait();
    (*waits_)[index_].seconds =
        std::chrono::duration<double>(Clock::now() - begin).count();
  }

 private:
  const std::shared_ptr<CallWaits> waits_;
  const size_t index_;
};

}  // namespace replicant::replicator
