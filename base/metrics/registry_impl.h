#pragma once

// The implementation of Registry, as prometheus-cpp sees it. Only registry.cc
// and exposer.cc include it, which keeps the vendor's headers out of
// registry.h.
#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/metrics/registry.h"
#include "base/mutex.h"

namespace replicant::metrics {

class Registry::Impl : public prometheus::Collectable {
 public:
  // The properties that all series of one name share.
  struct Description {
    std::string name;
    std::string help;
    prometheus::MetricType type;
    std::vector<double> limits;  // of a histogram
  };

  // The series with these labels, made if there is none.
  Counter& AddCounter(const Description& description, const Labels& labels)
      EXCLUDES(mutex_);
  Gauge& AddGauge(const Description& description, const Labels& labels)
      EXCLUDES(mutex_);
  Histogram& AddHistogram(const Description& description, const Labels& labels)
      EXCLUDES(mutex_);

  // Called by the vendor's server for each scrape.
  std::vector<prometheus::MetricFamily> Collect() const override
      EXCLUDES(mutex_);

 private:
  // Exactly one is set, by the type in the description.
  struct Series {
    std::unique_ptr<Counter> counter;
    std::unique_ptr<Gauge> gauge;
    std::unique_ptr<Histogram> histogram;
  };
  struct Family {
    Description description;
    std::map<Labels, Series> series;
  };

  // Checks everything, then returns the place of the series.
  Series& FindOrAdd(const Description& description, const Labels& labels)
      REQUIRES(mutex_);

  mutable Mutex mutex_;
  // by name; nodes stay where they are
  std::map<std::string, Family> families_ GUARDED_BY(mutex_);
};

}  // namespace replicant::metrics
