#include "replay/table/rate_limiter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace replicant::replay {
namespace {

// Tolerance for rounding of the error, so that an item that just fits is
// admitted.
constexpr double kSlack = 1e-6;

std::string WhyRatioRefused(const RateLimiterConfig& config,
                            const RateLimiterLimits& limits) {
  if (!(config.samples_per_insert > 0.0) ||
      !std::isfinite(config.samples_per_insert)) {
    return fmt::format("samples_per_insert {} must be > 0 and finite",
                       config.samples_per_insert);
  }
  if (!(config.error_buffer >= 0.0)) {
    return fmt::format("error_buffer {} must be >= 0", config.error_buffer);
  }
  const double per_message =
      config.samples_per_insert * static_cast<double>(limits.insert_chunk);
  if (config.error_buffer < per_message) {
    return fmt::format(
        "error_buffer {} is below samples_per_insert times the {} items of one "
        "message = {}: a message could wait for samples that wait for its "
        "items; hint: raise error_buffer to {}",
        config.error_buffer, limits.insert_chunk, per_message, per_message);
  }
  if (config.error_buffer < static_cast<double>(limits.samples_in_flight)) {
    return fmt::format(
        "error_buffer {} is below the {} samples that readers request at once: "
        "no reader might get a full batch; hint: raise error_buffer to {}",
        config.error_buffer, limits.samples_in_flight,
        limits.samples_in_flight);
  }
  if (2.0 * config.error_buffer < config.samples_per_insert + 1.0) {
    return fmt::format(
        "error_buffer {} is below (samples_per_insert + 1) / 2 = {}: inserts "
        "and samples could wait for each other",
        config.error_buffer, (config.samples_per_insert + 1.0) / 2.0);
  }
  if (limits.max_times_sampled > 0 &&
      static_cast<double>(limits.max_times_sampled) <
          config.samples_per_insert) {
    return fmt::format(
        "max_times_sampled {} is below samples_per_insert {}: items would "
        "be removed before they were sampled often enough",
        limits.max_times_sampled, config.samples_per_insert);
  }
  return "";
}

int64_t ToCount(double number, int64_t wanted) {
  return static_cast<int64_t>(std::clamp(std::floor(number + kSlack), 0.0,
                                         static_cast<double>(wanted)));
}

}  // namespace

std::string WhyRefused(const RateLimiterConfig& config,
                       const RateLimiterLimits& limits) {
  if (config.mode != RateLimiterMode::kQueue) {
    if (config.min_size_to_sample < 1) {
      return fmt::format("min_size_to_sample {} must be >= 1",
                         config.min_size_to_sample);
    }
    if (config.min_size_to_sample > limits.max_size) {
      return fmt::format(
          "min_size_to_sample {} is above max_size {}: the table could never "
          "be sampled",
          config.min_size_to_sample, limits.max_size);
    }
  }
  if (config.mode == RateLimiterMode::kQueue && limits.max_times_sampled == 0) {
    return "a queue needs max_times_sampled: otherwise a full queue would stay "
           "full";
  }
  return config.mode == RateLimiterMode::kRatio
             ? WhyRatioRefused(config, limits)
             : "";
}

RateLimiter::RateLimiter(const RateLimiterConfig& config,
                         const RateLimiterLimits& limits)
    : config_(config), limits_(limits) {
  const std::string reason = WhyRefused(config, limits);
  if (!reason.empty()) throw InvalidArgument("rate_limiter: " + reason);
}

double RateLimiter::error() const {
  if (config_.mode != RateLimiterMode::kRatio) return 0.0;
  const auto inserts =
      static_cast<double>(inserts_ - config_.min_size_to_sample);
  return config_.samples_per_insert * inserts - static_cast<double>(samples_) +
         correction_;
}

int64_t RateLimiter::AdmitInserts(int64_t wanted, int64_t size) const {
  switch (config_.mode) {
    case RateLimiterMode::kMinSize:
      return wanted;
    case RateLimiterMode::kQueue:
      return std::clamp<int64_t>(limits_.max_size - size, 0, wanted);
    case RateLimiterMode::kRatio:
      break;
  }
  // up to min_size_to_sample, or as many as the buffer takes
  const int64_t below_min_size =
      std::clamp<int64_t>(config_.min_size_to_sample - size, 0, wanted);
  const double room = config_.error_buffer - error();
  return std::max(below_min_size,
                  ToCount(room / config_.samples_per_insert, wanted));
}

int64_t RateLimiter::AdmitSamples(int64_t wanted, int64_t size) const {
  switch (config_.mode) {
    case RateLimiterMode::kMinSize:
      return size >= config_.min_size_to_sample ? wanted : 0;
    case RateLimiterMode::kQueue:
      return std::min(wanted, size);
    case RateLimiterMode::kRatio:
      break;
  }
  if (size < config_.min_size_to_sample) return 0;
  return ToCount(error() + config_.error_buffer, wanted);
}

std::string RateLimiter::WhyInsertsWait(int64_t size) const {
  if (AdmitInserts(1, size) > 0) return "";
  if (config_.mode == RateLimiterMode::kQueue) {
    return fmt::format("the queue is full with {} items", size);
  }
  return fmt::format(
      "samples lag: {} inserts and {} samples, {:.1f} samples behind {} per "
      "insert; at most {:.1f} are allowed",
      inserts_, samples_, error(), config_.samples_per_insert,
      config_.error_buffer);
}

std::string RateLimiter::WhySamplesWait(int64_t size) const {
  if (AdmitSamples(1, size) > 0) return "";
  if (config_.mode == RateLimiterMode::kQueue) return "the queue is empty";
  if (size < config_.min_size_to_sample) {
    return fmt::format("the table holds {} items; min_size_to_sample is {}",
                       size, config_.min_size_to_sample);
  }
  return fmt::format(
      "inserts lag: {} inserts and {} samples, {:.1f} samples ahead of {} per "
      "insert; at most {:.1f} are allowed",
      inserts_, samples_, -error(), config_.samples_per_insert,
      config_.error_buffer);
}

void RateLimiter::Restore(const State& state) {
  inserts_ = state.inserts;
  TakeOver(state);
}

void RateLimiter::RestoreSamples(const State& state) {
  if (state.samples >= samples_) TakeOver(state);
}

void RateLimiter::TakeOver(const State& state) {
  samples_ = state.samples;
  correction_ = state.correction;
  if (state.config == config_) return;
  correction_ = 0.0;
  const double plain = error();
  correction_ =
      std::clamp(plain, -config_.error_buffer, config_.error_buffer) - plain;
}

void WaitRecord::NoteRefused(std::string_view who, Clock::TimePoint now) {
  if (since_.has_value()) return;
  since_ = now;
  who_ = who;
}

double WaitRecord::waiting_s(Clock::TimePoint now) const {
  if (!since_.has_value()) return 0.0;
  return ToSeconds(now - *since_);
}

}  // namespace replicant::replay
