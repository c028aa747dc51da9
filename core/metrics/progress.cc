#include "core/metrics/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/error.h"
#include "core/metrics/format.h"

namespace replicant::metrics {
namespace {

const ProgressOptions& Checked(const ProgressOptions& options) {
  const auto shortest = std::min(
      {options.live_interval, options.plain_interval, options.rate_window});
  if (shortest.count() <= 0) {
    throw InvalidArgument(fmt::format(
        "ProgressLine: live_interval, plain_interval and rate_window must be "
        "> 0, got {} ns",
        shortest.count()));
  }
  return options;
}

}  // namespace

ProgressLine::ProgressLine(const ProgressOptions& options, Clock& clock)
    : rate_window_(Checked(options).rate_window),
      clock_(clock),
      line_(options.fd),
      interval_(line_.is_live() ? options.live_interval
                                : options.plain_interval),
      log_above_line_(line_) {}

ProgressLine::~ProgressLine() {
  MutexLock lock(mutex_);
  if (!fields_.empty()) Show(clock_.Now());
}

void ProgressLine::AddCount(std::string label, Source total, double goal) {
  AddField(Field::Kind::kCount, std::move(label), std::move(total), goal);
}

void ProgressLine::AddRate(std::string label, Source total) {
  AddField(Field::Kind::kRate, std::move(label), std::move(total), 0.0);
}

void ProgressLine::AddValue(std::string label, Source value) {
  AddField(Field::Kind::kValue, std::move(label), std::move(value), 0.0);
}

void ProgressLine::AddText(std::string label,
                           std::function<std::string()> text) {
  MutexLock lock(mutex_);
  fields_.push_back({Field::Kind::kText, std::move(label), nullptr, 0.0,
                     RateMeter(rate_window_), std::move(text)});
}

void ProgressLine::AddField(Field::Kind kind, std::string label, Source source,
                            double goal) {
  MutexLock lock(mutex_);
  fields_.push_back({kind, std::move(label), std::move(source), goal,
                     RateMeter(rate_window_), nullptr});
}

void ProgressLine::Update() {
  const Clock::TimePoint now = clock_.Now();
  MutexLock lock(mutex_);
  if (now < next_) return;
  next_ = now + interval_;
  Show(now);
}

void ProgressLine::Show(Clock::TimePoint now) {
  std::string text;
  for (Field& field : fields_) {
    if (!text.empty()) text += "  ";
    text += Format(field, now);
  }
  line_.Show(text);
}

std::string ProgressLine::Format(Field& field, Clock::TimePoint now) {
  if (field.kind == Field::Kind::kText) {
    return fmt::format("{} {}", field.label, field.text());
  }
  const double value = field.source();
  if (field.kind == Field::Kind::kValue) {
    return fmt::format("{} {}", field.label, FormatQuantity(value));
  }
  field.meter.Add(now, value);
  const double rate = field.meter.rate();
  if (field.kind == Field::Kind::kRate) {
    return fmt::format("{} {}", field.label,
                       std::isnan(rate) ? "-" : FormatQuantity(rate));
  }

  std::string text = fmt::format("{} {}", field.label, FormatQuantity(value));
  if (field.goal > 0.0) {
    const double percent = std::clamp(100.0 * value / field.goal, 0.0, 100.0);
    // rounded down: 100 % means done
    text += fmt::format("/{} {:.0f}%", FormatQuantity(field.goal),
                        std::floor(percent));
    // rate 0 or unknown gives "?"
    const double left = std::max(field.goal - value, 0.0);
    if (left > 0.0) text += " eta " + FormatDuration(left / rate);
  }
  return text;
}

}  // namespace replicant::metrics
