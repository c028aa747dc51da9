#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "replay/table/shard.h"

namespace replicant::replay {

// Rates per second, over the last period of at least a second.
struct ServiceRates {
  double inserted_steps = 0.0;
  double inserted_items = 0.0;
  double sampled_items = 0.0;
  double updates = 0.0;
};

// Measures the rates of a shard, and logs events for an operator: once when a
// side stalls or steps find no room, and once when it is over.
//
// Thread-safety: one thread at a time.
class ServiceWatch {
 public:
  // The rates begin with what `shard` has now: a restored one counts on.
  ServiceWatch(const Shard& shard, Clock::TimePoint now);

  // Reports steps that a writer had sent to an earlier service. The next
  // Update() logs them in one line for all writers.
  void NoteLostSteps(int64_t num_steps);
  // Checks the shard, at most once a second.
  void Update(const Shard& shard, Clock::TimePoint now);

  const ServiceRates& rates() const { return rates_; }

 private:
  static ServiceRates TotalsOf(const ShardStatus& status);
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
