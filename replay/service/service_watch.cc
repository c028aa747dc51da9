#include "replay/service/service_watch.h"

#include <spdlog/spdlog.h>

#include <chrono>

namespace replicant::replay {
namespace {

// Time for the first writer and the first reader to arrive.
constexpr auto kStartTime = std::chrono::seconds(30);

}  // namespace

ServiceWatch::ServiceWatch(const Shard& shard, Clock::TimePoint now)
    : since_(now), totals_(TotalsOf(shard.Status())) {}

void ServiceWatch::NoteLostSteps(int64_t num_steps) {
  if (num_steps == 0) return;
  lost_steps_ += num_steps;
  ++num_losers_;
}

void ServiceWatch::Update(const Shard& shard, Clock::TimePoint now) {
  const double seconds = ToSeconds(now - since_);
  if (seconds < 1.0) return;
  const ShardStatus status = shard.Status();
  LogStalls(status);
  LogNoRoom(status.room_wait);
  LogLostSteps();
  UpdateRates(status, seconds);
  since_ = now;
}

ServiceRates ServiceWatch::TotalsOf(const ShardStatus& status) {
  ServiceRates totals;
  totals.inserted_steps = static_cast<double>(status.inserted_steps);
  for (const TableStatus& table : status.tables) {
    totals.inserted_items += static_cast<double>(table.inserts);
    totals.sampled_items += static_cast<double>(table.samples);
    totals.updates += static_cast<double>(table.updates + table.late_updates);
  }
  return totals;
}

void ServiceWatch::UpdateRates(const ShardStatus& status, double seconds) {
  const ServiceRates totals = TotalsOf(status);
  const auto rate = [seconds](double is, double was) {
    return (is - was) / seconds;
  };
  rates_ = {rate(totals.inserted_steps, totals_.inserted_steps),
            rate(totals.inserted_items, totals_.inserted_items),
            rate(totals.sampled_items, totals_.sampled_items),
            rate(totals.updates, totals_.updates)};
  totals_ = totals;
}

void ServiceWatch::LogStalls(const ShardStatus& status) {
  stalled_sides_.resize(status.tables.size());
  for (size_t i = 0; i < status.tables.size(); ++i) {
    const TableStatus& table = status.tables[i];
    const StalledSide& stalled = table.stalled;
    // a side that has not arrived yet may still be starting
    const bool is_starting =
        stalled.last.empty() && stalled.idle_s < ToSeconds(kStartTime);
    // if all writers have said goodbye, the run ends: not a stall
    const bool have_ended = stalled.side == "writers" &&
                            !stalled.last.empty() && status.num_writers == 0;
    const std::string side = is_starting || have_ended ? "" : stalled.side;
    if (stalled_sides_[i] == side) continue;
    stalled_sides_[i] = side;
    if (side.empty()) {
      spdlog::info("replay: table '{}': both sides continue", table.name);
      continue;
    }
    const WaitStatus& wait =
        stalled.side == "readers" ? table.insert_wait : table.sample_wait;
    spdlog::warn(
        "replay: table '{}': the {} have stalled for {:.1f} s, last was {}; {} "
        "waits: {}",
        table.name, stalled.side, stalled.idle_s,
        stalled.last.empty() ? "nobody" : stalled.last, wait.who, wait.why);
  }
}

void ServiceWatch::LogNoRoom(const WaitStatus& wait) {
  const bool lacks_room =
      wait.is_waiting && wait.waiting_s >= ToSeconds(kStallTime);
  if (lacks_room == lacks_room_) return;
  lacks_room_ = lacks_room;
  if (lacks_room) {
    spdlog::warn("replay: {} waits for {:.1f} s: {}", wait.who, wait.waiting_s,
                 wait.why);
  } else {
    spdlog::info("replay: there is room for chunks again");
  }
}

void ServiceWatch::LogLostSteps() {
  if (num_losers_ == 0) return;
  spdlog::warn(
      "replay: {} steps of {} writers are lost: a previous service "
      "acknowledged them after its last checkpoint",
      lost_steps_, num_losers_);
  lost_steps_ = num_losers_ = 0;
}

}  // namespace replicant::replay
