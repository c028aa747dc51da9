#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"

namespace replicant::comm {

// Where a rank is in the order of its calls.
struct RankState {
  // That it has begun.
  uint64_t num_calls = 0;
  // The last of them while it is in it, Collective::ToString(); empty between
  // calls.
  std::string call;
};

// What one rank of a group knows of the others, and whom it gives up.
//
// A watched rank is given up if it was not heard of for `timeout` (it is
// stopped, or its host is gone), or if its connection broke and did not come
// back within `reconnect_time` (it is dead).
//
// Time in which nobody asked FindLost(), more than half of the timeout, counts
// for nobody: this process was then held up itself.
//
// Thread-safety: one thread at a time.
class RankTable {
 public:
  // `places` says by rank where it runs ("host12/4711"); the clock outlives
  // this.
  RankTable(std::vector<std::string> places, Clock::Duration timeout,
            Clock::Duration reconnect_time, const Clock* clock);

  int size() const { return static_cast<int>(ranks_.size()); }

  // From now on the rank is to be heard of.
  void Watch(int rank);
  // It has left, or has been told all that it needs to know.
  void Unwatch(int rank) { ranks_[Index(rank)].is_watched = false; }
  bool IsAnyWatched() const;

  void Hear(int rank, RankState state);
  // Its connection broke, or is there again.
  void Disconnect(int rank);
  void Reconnect(int rank) { ranks_[Index(rank)].disconnected_at.reset(); }

  // Why a watched rank is given up, which then is not watched any more: who it
  // is, and from which call it is missing. std::nullopt while all are there.
  std::optional<std::string> FindLost();

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
