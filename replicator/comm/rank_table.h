#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"

namespace replicant::comm {

// A rank's position in the order of its calls.
struct RankState {
  // Number of calls that it has begun.
  uint64_t num_calls = 0;
  // The current call, Collective::ToString(); empty between calls.
  std::string call;
};

// One rank's knowledge of the others in its group. Decides which to give up.
//
// A watched rank is given up if nothing was heard from it for `timeout` (it is
// stopped, or its host is gone), or if its connection broke and did not come
// back within `reconnect_time` (it is dead). If more than half of the timeout
// passes between two calls of FindLost(), that time does not count: this
// process itself was held up.
//
// Thread-safety: one thread at a time.
class RankTable {
 public:
  // `places` says where each rank runs ("host12/4711"), by rank. The clock must
  // outlive the table.
  RankTable(std::vector<std::string> places, Clock::Duration timeout,
            Clock::Duration reconnect_time, const Clock* clock);

  int size() const { return static_cast<int>(ranks_.size()); }

  // Starts to watch the rank.
  void Watch(int rank);
  // Stops watching the rank: it has left, or knows all that it needs to.
  void Unwatch(int rank) { ranks_[Index(rank)].is_watched = false; }
  bool IsAnyWatched() const;

  void Hear(int rank, RankState state);
  // Record that the rank's connection broke, or is restored.
  void Disconnect(int rank);
  void Reconnect(int rank) { ranks_[Index(rank)].disconnected_at.reset(); }

  // Finds a watched rank to give up, and stops watching it. Returns its name,
  // why, and the call that it is missing from; std::nullopt if all are there.
  std::optional<std::string> FindLost();

  // The ranks that have not come to the first call in which others wait:
  // "; not in call 7: rank 5 of 8 (host12/4711)". Empty if there are none.
  std::string DescribeLate() const;

 private:
  struct Rank {
    std::string place;
    bool is_watched = false;
    Clock::TimePoint heard_at;
    std::optional<Clock::TimePoint> disconnected_at;
    RankState state;
  };

  static size_t Index(int rank) { return static_cast<size_t>(rank); }
  std::string Describe(size_t rank, const std::string& why) const;

  const Clock::Duration timeout_;
  const Clock::Duration reconnect_time_;
  const Clock& clock_;
  std::vector<Rank> ranks_;
  Clock::TimePoint asked_at_;
  Clock::TimePoint watching_since_;
};

}  // namespace replicant::comm
