#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace replicant::testing {

// A vector clock: how much of each stream's work comes before a point.
//
// Source: Mattern, "Virtual Time and Global States of Distributed Systems"
// (1989), section 4.
class Clock {
 public:
  // Work number `tick` of a stream, counted from 1.
  bool Has(uintptr_t stream, uint64_t tick) const {
    const auto found = ticks_.find(stream);
    return found != ticks_.end() && found->second >= tick;
  }
  // Whether all that comes before `other` comes before this.
  bool Includes(const Clock& other) const {
    for (const auto& [stream, tick] : other.ticks_) {
      if (!Has(stream, tick)) return false;
    }
    return true;
  }
  void Join(const Clock& other) {
    for (const auto& [stream, tick] : other.ticks_) {
      uint64_t& own = ticks_[stream];
      if (own < tick) own = tick;
    }
  }
  // Starts the next work of `stream`, whose clock this is; returns its number.
  uint64_t Advance(uintptr_t stream) { return ++ticks_[stream]; }

 private:
  std::map<uintptr_t, uint64_t> ticks_;
};

// A read or write of some bytes of one allocation.
struct Access {
  size_t begin, end;  // bytes
  bool is_write;
  uintptr_t stream;
  uint64_t tick;
  std::string name;  // of the kernel
};

// The accesses to one allocation that later ones may have to wait for.
class AccessHistory {
 public:
  // Adds an access by work whose clock is `clock`. Returns the access that it
  // conflicts with, if there is one that is not before it.
  std::optional<Access> Add(const Access& access, const Clock& clock);

 private:
  std::vector<Access> accesses_;
};

}  // namespace replicant::testing
