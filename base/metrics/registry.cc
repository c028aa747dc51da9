#include "base/metrics/registry.h"

#include <fmt/format.h>
#include <prometheus/check_names.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/metrics/registry_impl.h"
#include "base/utf8.h"

namespace replicant::metrics {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricType;

constexpr int kMaxLimits = 100;
constexpr size_t kMaxSeries = 10000;

std::string_view NameOf(MetricType type) {
  switch (type) {
    case MetricType::Counter:
      return "counter";
    case MetricType::Gauge:
      return "gauge";
    default:
      return "histogram";
  }
}

void CheckDescription(const std::string& name, const std::string& help,
                      MetricType type) {
  if (!prometheus::CheckMetricName(name)) {
    throw InvalidArgument(
        fmt::format("metric '{}': a name may have letters, digits and '_', "
                    "such as replicant_replay_items",
                    ToValidUtf8(name)));
  }
  const bool is_total = name.ends_with("_total");
  if (is_total != (type == MetricType::Counter)) {
    throw InvalidArgument(
        fmt::format("metric '{}': the name of a {} must {}end in _total", name,
                    NameOf(type), is_total ? "not " : ""));
  }
  if (help.empty() || help.find('\n') != std::string::npos) {
    throw InvalidArgument(
        fmt::format("metric '{}': the help text must be one line", name));
  }
}

void CheckLabels(const std::string& name, const Labels& labels) {
  for (const auto& [label, value] : labels) {
    // Prometheus uses "le" for the limit of a bucket
    if (!prometheus::CheckLabelName(label) || label == "le") {
      throw InvalidArgument(
          fmt::format("metric '{}': label '{}': a name may have letters, "
                      "digits and '_', but must not begin with '__' or be 'le'",
                      name, ToValidUtf8(label)));
    }
  }
}

void CheckLimits(const std::vector<double>& limits) {
  if (limits.empty() || limits.size() > kMaxLimits) {
    throw InvalidArgument(
        fmt::format("Histogram: expected 1 to {} bucket limits, got {}",
                    kMaxLimits, limits.size()));
  }
  for (size_t i = 0; i < limits.size(); ++i) {
    if (!std::isfinite(limits[i]) || (i > 0 && limits[i] <= limits[i - 1])) {
      throw InvalidArgument(fmt::format(
          "Histogram: bucket limits must be finite and ascending, got {}",
          fmt::join(limits, ", ")));
    }
  }
}

ClientMetric::Histogram Export(const Histogram& histogram) {
  ClientMetric::Histogram out;
  const std::vector<uint64_t> counts = histogram.counts();
  uint64_t cumulative = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    cumulative += counts[i];
    const double limit = i < histogram.limits().size()
                             ? histogram.limits()[i]
                             : std::numeric_limits<double>::infinity();
    out.bucket.push_back({cumulative, limit});
  }
  out.sample_count = cumulative;
  out.sample_sum = histogram.sum();
  return out;
}

}  // namespace

void Counter::Increment(double amount) {
  REPLICANT_CHECK(amount >= 0.0 && std::isfinite(amount),
                  "a counter cannot grow by {}", amount);
  value_.fetch_add(amount, std::memory_order_relaxed);
}

Histogram::Histogram(std::vector<double> limits)
    : limits_(std::move(limits)), counts_(limits_.size() + 1) {
  CheckLimits(limits_);
}

void Histogram::Observe(double value) {
  // NaN is below no limit, so it ends up in the last bucket
  const auto bucket =
      std::find_if(limits_.begin(), limits_.end(),
                   [value](double limit) { return value <= limit; });
  counts_[static_cast<size_t>(bucket - limits_.begin())].fetch_add(
      1, std::memory_order_relaxed);
  if (!std::isnan(value)) sum_.fetch_add(value, std::memory_order_relaxed);
}

std::vector<uint64_t> Histogram::counts() const {
  std::vector<uint64_t> counts;
  counts.reserve(counts_.size());
  for (const auto& count : counts_) {
    counts.push_back(count.load(std::memory_order_relaxed));
  }
  return counts;
}

std::vector<double> ExponentialLimits(double first, double factor, int count) {
  if (!(first > 0.0) || !(factor > 1.0) || count < 1 || count > kMaxLimits) {
    throw InvalidArgument(
        fmt::format("ExponentialLimits: expected first > 0, factor > 1 and "
                    "count in [1, {}], got {}, {}, {}",
                    kMaxLimits, first, factor, count));
  }
  std::vector<double> limits;
  limits.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    limits.push_back(first * std::pow(factor, i));
  }
  return limits;
}

Registry::Impl::Series& Registry::Impl::FindOrAdd(
    const Description& description, const Labels& labels) {
  CheckDescription(description.name, description.help, description.type);
  CheckLabels(description.name, labels);
  if (description.type == MetricType::Histogram) {
    CheckLimits(description.limits);
  }

  const auto family = families_.find(description.name);
  if (family != families_.end()) {
    const Description& known = family->second.description;
    if (known.type != description.type || known.help != description.help ||
        known.limits != description.limits) {
      throw InvalidArgument(fmt::format(
          "metric '{}': exists as a {} with the help text '{}'{}", known.name,
          NameOf(known.type), known.help,
          known.limits != description.limits ? " and other limits" : ""));
    }
    if (family->second.series.size() >= kMaxSeries &&
        !family->second.series.contains(labels)) {
      throw InvalidArgument(
          fmt::format("metric '{}': more than {} series; hint: a label must "
                      "not be a value that never repeats",
                      known.name, kMaxSeries));
    }
    return family->second.series[labels];
  }
  return families_.emplace(description.name, Family{description, {}})
      .first->second.series[labels];
}

Counter& Registry::Impl::AddCounter(const Description& description,
                                    const Labels& labels) {
  MutexLock lock(mutex_);
  auto& counter = FindOrAdd(description, labels).counter;
  if (!counter) counter = std::make_unique<Counter>();
  return *counter;
}

Gauge& Registry::Impl::AddGauge(const Description& description,
                                const Labels& labels) {
  MutexLock lock(mutex_);
  auto& gauge = FindOrAdd(description, labels).gauge;
  if (!gauge) gauge = std::make_unique<Gauge>();
  return *gauge;
}

Histogram& Registry::Impl::AddHistogram(const Description& description,
                                        const Labels& labels) {
  MutexLock lock(mutex_);
  auto& histogram = FindOrAdd(description, labels).histogram;
  if (!histogram) histogram = std::make_unique<Histogram>(description.limits);
  return *histogram;
}

std::vector<prometheus::MetricFamily> Registry::Impl::Collect() const {
  MutexLock lock(mutex_);
  std::vector<prometheus::MetricFamily> families;
  for (const auto& [name, family] : families_) {
    prometheus::MetricFamily out;
    out.name = name;
    out.help = family.description.help;
    out.type = family.description.type;
    for (const auto& [labels, series] : family.series) {
      ClientMetric metric;
      for (const auto& [label, value] : labels) {
        metric.label.push_back({label, ToValidUtf8(value)});
      }
      if (series.counter) metric.counter.value = series.counter->value();
      if (series.gauge) metric.gauge.value = series.gauge->value();
      if (series.histogram) metric.histogram = Export(*series.histogram);
      out.metric.push_back(std::move(metric));
    }
    families.push_back(std::move(out));
  }
  return families;
}

Registry::Registry() : impl_(std::make_shared<Impl>()) {}

Registry::~Registry() = default;

Counter& Registry::AddCounter(const std::string& name, const std::string& help,
                              const Labels& labels) {
  return impl_->AddCounter({name, help, MetricType::Counter, {}}, labels);
}

Gauge& Registry::AddGauge(const std::string& name, const std::string& help,
                          const Labels& labels) {
  return impl_->AddGauge({name, help, MetricType::Gauge, {}}, labels);
}

Histogram& Registry::AddHistogram(const std::string& name,
                                  const std::string& help,
                                  std::vector<double> limits,
                                  const Labels& labels) {
  return impl_->AddHistogram(
      {name, help, MetricType::Histogram, std::move(limits)}, labels);
}

std::string Registry::ToText() const {
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, impl_->Collect());
  return text.str();
}

}  // namespace replicant::metrics
