#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace replicant::replay {

enum class RateLimiterMode {
  kRatio,    // samples follow inserts at a ratio, within a buffer
  kMinSize,  // samples wait for a number of items, inserts never wait
  kQueue     // inserts wait for room, samples for an item; none is lost
};

// How often the items of a table are sampled.
struct RateLimiterConfig {
  RateLimiterMode mode = RateLimiterMode::kRatio;
  // Mean number of times that an item is sampled; kRatio only.
  double samples_per_insert = 8.0;
  // Items that the table must hold before the first sample; not kQueue.
  int64_t min_size_to_sample = 1000;
  // Number of samples by which samples may lead or lag inserts; kRatio only.
  double error_buffer = 8000.0;

  bool operator==(const RateLimiterConfig&) const = default;
};

// The limits with which a RateLimiterConfig must be compatible.
struct RateLimiterLimits {
  // Maximum number of items in the table.
  int64_t max_size = 0;
  // Maximum number of samples of one item; 0 for no limit.
  int64_t max_times_sampled = 0;
  // Maximum number of items in one message of a writer.
  int64_t insert_chunk = 1;
  // Samples that all readers together have requested at once: replicas x
  // prefetch depth x batch size.
  int64_t samples_in_flight = 1;
};

// Returns why `config` cannot be used, or "" if it can. It cannot if
//  - the table can never hold min_size_to_sample items,
//  - writers and readers could wait for each other; to prevent this, the buffer
//    must cover what is sent and requested at once,
//      error_buffer >= max(samples_per_insert insert_chunk, samples_in_flight)
//    and 2 error_buffer >= samples_per_insert + 1,
//  - max_times_sampled removes items before samples_per_insert is reached, or,
//    in a queue, never removes them.
std::string WhyRefused(const RateLimiterConfig& config,
                       const RateLimiterLimits& limits);

// Decides how many inserts and samples a table admits now, one by one.
//
// In mode kRatio, once the table holds min_size_to_sample items,
//
//   error = samples_per_insert (inserts - min_size_to_sample) - samples
//
// stays within +/- error_buffer: an insert that would raise it above, or a
// sample that would lower it below, waits. Below min_size_to_sample inserts are
// always admitted and samples never.
//
// With a config that WhyRefused() accepts, one side is always admitted: while
// inserts wait, error > error_buffer - samples_per_insert, and then
// error - 1 >= -error_buffer.
//
// Thread-safety: one thread at a time. Shard holds the lock
// (replay/table/shard.h).
class RateLimiter {
 public:
  // Throws InvalidArgument with the reason if WhyRefused() has one.
  RateLimiter(const RateLimiterConfig& config, const RateLimiterLimits& limits);

  // Return how many of `wanted` are admitted now, for a table of `size` items.
  int64_t AdmitInserts(int64_t wanted, int64_t size) const;
  int64_t AdmitSamples(int64_t wanted, int64_t size) const;

  // Record inserts or samples that were made.
  void CountInserts(int64_t count) { inserts_ += count; }
  void CountSamples(int64_t count) { samples_ += count; }

  // Return "" if one more is admitted now, else the reason for the wait.
  std::string WhyInsertsWait(int64_t size) const;
  std::string WhySamplesWait(int64_t size) const;

  // The state that a checkpoint keeps.
  struct State {
    RateLimiterConfig config;
    int64_t inserts = 0, samples = 0;
    double correction = 0.0;
  };
  State state() const { return {config_, inserts_, samples_, correction_}; }
  // Continues from `state` with this limiter's settings. If the state has other
  // settings, an error outside the buffer is moved to the nearer end, so that
  // neither side has to catch up.
  void Restore(const State& state);
  // Continues from a later state of the restored limiter. Inserts since then
  // were repeated and remain; a state with fewer samples is older and changes
  // nothing.
  void RestoreSamples(const State& state);

  int64_t inserts() const { return inserts_; }
  int64_t samples() const { return samples_; }
  // As defined above; 0 in the other modes.
  double error() const;
  const RateLimiterConfig& config() const { return config_; }
  // Size of the table below which no item is drawn.
  int64_t min_size_to_sample() const {
    return config_.mode == RateLimiterMode::kQueue ? 1
                                                   : config_.min_size_to_sample;
  }

 private:
  // Takes over a state, except its inserts.
  void TakeOver(const State& state);

  const RateLimiterConfig config_;
  const RateLimiterLimits limits_;
  int64_t inserts_ = 0;
  int64_t samples_ = 0;
  // Added to the error; nonzero only after Restore().
  double correction_ = 0.0;
};

// Measures how long one side of a table has waited, for the status.
//
// Thread-safety: one thread at a time.
class WaitRecord {
 public:
  // Records that `who` was refused at `now`. Starts a wait unless one runs.
  void NoteRefused(std::string_view who, Clock::TimePoint now);
  // Records that the side was admitted. Ends the wait.
  void NoteAdmitted() { since_.reset(); }

  bool is_waiting() const { return since_.has_value(); }
  // The name that was refused first in this wait.
  const std::string& who() const { return who_; }
  // 0 unless is_waiting().
  double waiting_s(Clock::TimePoint now) const;

 private:
  std::optional<Clock::TimePoint> since_;
  std::string who_;
};

}  // namespace replicant::replay
