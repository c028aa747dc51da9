#include "fleet/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/metrics/format.h"

namespace replicant::fleet {
namespace {

const ProgressOptions& Checked(const ProgressOptions& options) {
  const auto shortest = std::min({options.live_interval, options.plain_interval,
                                  options.rate_window, options.left_window});
  if (shortest.count() <= 0) {
    throw InvalidArgument(fmt::format(
        "ProgressLine: live_interval, plain_interval, rate_window and "
        "left_window must be > 0, got {} ns",
        shortest.count()));
  }
  return options;
}

}  // namespace

ProgressLine::ProgressLine(const ProgressOptions& options, Clock& clock)
    : rate_window_(Checked(options).rate_window),
      left_window_(options.left_window),
      clock_(clock),
      start_(clock.Now()),
      line_(options.fd),
      interval_(line_.is_live() ? options.live_interval
                                : options.plain_interval),
      log_above_line_(line_) {}

ProgressLine::~ProgressLine() {
  MutexLock lock(mutex_);
  if (!entries_.empty()) Show(clock_.Now());
}

void ProgressLine::Add(Entry entry) {
  MutexLock lock(mutex_);
  entries_.push_back(std::move(entry));
}

void ProgressLine::AddCount(std::string label, Source total, double goal) {
  AddText(std::move(label), [total = std::move(total), goal] {
    const std::string count = metrics::FormatQuantity(total());
    return goal > 0.0 ? count + "/" + metrics::FormatQuantity(goal) : count;
  });
}

void ProgressLine::AddRate(std::string label, Source total) {
  Add([label = std::move(label), total = std::move(total),
       meter = metrics::RateMeter(rate_window_)](Clock::TimePoint now) mutable {
    meter.Add(now, total());
    const double rate = meter.rate();
    return std::vector<std::string>{
        fmt::format("{} {}", label,
                    std::isnan(rate) ? "-" : metrics::FormatQuantity(rate))};
  });
}

void ProgressLine::AddValue(std::string label, Source value) {
  AddText(std::move(label), [value = std::move(value)] {
    return metrics::FormatQuantity(value());
  });
}

void ProgressLine::AddTime(std::vector<Goal> goals) {
  std::vector<metrics::RateMeter> meters(goals.size(),
                                         metrics::RateMeter(left_window_));
  Add([start = start_, goals = std::move(goals),
       meters = std::move(meters)](Clock::TimePoint now) mutable {
    std::string text = metrics::FormatDuration(ToSeconds(now - start));
    double least = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < goals.size(); ++i) {
      const double value = goals[i].value();
      meters[i].Add(now, value);
      const double left_s =
          std::max(goals[i].goal - value, 0.0) / meters[i].rate();
      // a rate that is 0 or unknown gives no estimate of the end
      if (left_s < least) least = left_s;
    }
    if (!goals.empty())
      text += fmt::format(", {} left", metrics::FormatDuration(least));
    return std::vector<std::string>{std::move(text)};
  });
}

void ProgressLine::AddText(std::string label, TextSource text) {
  AddForms(std::move(label), [text = std::move(text)] {
    return std::vector<std::string>{text()};
  });
}

void ProgressLine::AddForms(std::string label, FormsSource forms) {
  Add([label = std::move(label),
       forms = std::move(forms)](Clock::TimePoint /*now*/) {
    std::vector<std::string> texts = forms();
    std::erase(texts, "");
    for (std::string& text : texts) text = fmt::format("{} {}", label, text);
    return texts;
  });
}

void ProgressLine::Update() {
  const Clock::TimePoint now = clock_.Now();
  MutexLock lock(mutex_);
  if (now < next_) return;
  next_ = now + interval_;
  Show(now);
}

void ProgressLine::Show(Clock::TimePoint now) {
  constexpr std::string_view kGap = "  ";
  const auto columns = static_cast<size_t>(std::max(line_.columns(), 0));
  std::string text;
  for (const Entry& entry : entries_) {
    const std::string_view gap = text.empty() ? "" : kGap;
    for (const std::string& form : entry(now)) {
      // bytes, which are no fewer than columns
      if (text.size() + gap.size() + form.size() > columns) continue;
      text += gap;
      text += form;
      break;
    }
  }
  line_.Show(text);
}

}  // namespace replicant::fleet
