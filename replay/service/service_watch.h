#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "replay/table/shard.h"

namespace replicant::replay {

// Per second, over the last whole second or more.
struct ServiceRates {
  double inserted_steps = 0.0;
  double inserted_items = 0.0;
  double sampled_items = 0.0;
  double updates = 0.0;
};

// Measures the rates of a shard, and logs what an operator should know: once
// when a side stalls or steps find no room, and once when they go on.
//
// Thread-safety: one thread at a time.
class ServiceWatch {
 public:
  explicit ServiceWatch(Clock::TimePoint now) : since_(now) {}

  // Steps that a writer had sent to a service before this one; logged by the
  // next Update(), in one line for all writers.
  void NoteLostSteps(int64_t num_steps);
  // Looks at the shard, at most once a second.
  void Update(const Shard& shard, Clock::TimePoint now);

  const ServiceRates& rates() const { return rates_; }

 private:
  void UpdateRates(const ShardStatus& status, double seconds);
  void LogStalls(const ShardStatus& status);
  void LogNoRoom(const WaitStatus& wait);
  void LogLostSteps();

  Clock::TimePoint since_;
  ServiceRates rates_;
  ServiceRates totals_;  // at since_
  int64_t lost_steps_ = 0;
  int64_t num_losers_ = 0;
  bool lacks_room_ = false;                 // as logged last
  std::vector<std::string> stalled_sides_;  // by table, as logged last
};

}  // namespace replicant::replay
