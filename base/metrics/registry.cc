#include "base/metrics/registry.h"

#include <fmt/format.h>
#include <prometheus/check_names.h>
#include <prometheus/text_serializer.h>

#include <cmath>
#include <sstream>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "base/metrics/registry_impl.h"
#include "base/utf8.h"

namespace replicant::metrics {
namespace {

using prometheus::MetricType;

constexpr size_t kMaxSeries = 10000;

std::string_view NameOf(MetricType type) {
  return type == MetricType::Counter ? "counter" : "gauge";
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

}  // namespace

void Counter::Increment(double amount) {
  REPLICANT_CHECK(amount >= 0.0 && std::isfinite(amount),
                  "a counter cannot grow by {}", amount);
  value_.fetch_add(amount, std::memory_order_relaxed);
}

Registry::Impl::Series& Registry::Impl::FindOrAdd(const std::string& name,
                                                  const std::string& help,
                                                  MetricType type,
                                                  const Labels& labels) {
  CheckDescription(name, help, type);
  CheckLabels(name, labels);
  MutexLock lock(mutex_);
  const auto [place, is_new] =
      families_.try_emplace(name, Family{help, type, {}});
  Family& family = place->second;
  if (family.type != type || family.help != help) {
    throw InvalidArgument(
        fmt::format("metric '{}': exists as a {} with the help text '{}'", name,
                    NameOf(family.type), family.help));
  }
  if (family.series.size() >= kMaxSeries && !family.series.contains(labels)) {
    throw InvalidArgument(
        fmt::format("metric '{}': more than {} series; hint: a label must "
                    "not be a value that never repeats",
                    name, kMaxSeries));
  }
  return family.series[labels];
}

std::vector<prometheus::MetricFamily> Registry::Impl::Collect() const {
  MutexLock lock(mutex_);
  std::vector<prometheus::MetricFamily> families;
  for (const auto& [name, family] : families_) {
    prometheus::MetricFamily& out = families.emplace_back(
        prometheus::MetricFamily{name, family.help, family.type, {}});
    for (const auto& [labels, series] : family.series) {
      prometheus::ClientMetric& metric = out.metric.emplace_back();
      for (const auto& [label, value] : labels) {
        metric.label.push_back({label, ToValidUtf8(value)});
      }
      metric.counter.value = series.counter.value();
      metric.gauge.value = series.gauge.value();
    }
  }
  return families;
}

Registry::Registry() : impl_(std::make_shared<Impl>()) {}

Registry::~Registry() = default;

Counter& Registry::AddCounter(const std::string& name, const std::string& help,
                              const Labels& labels) {
  return impl_->FindOrAdd(name, help, MetricType::Counter, labels).counter;
}

Gauge& Registry::AddGauge(const std::string& name, const std::string& help,
                          const Labels& labels) {
  return impl_->FindOrAdd(name, help, MetricType::Gauge, labels).gauge;
}

std::string Registry::ToText() const {
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, impl_->Collect());
  return text.str();
}

}  // namespace replicant::metrics
