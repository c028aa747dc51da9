#pragma once

// The implementation of Registry, as prometheus-cpp sees it. Only registry.cc
// and exposer.cc include it, which keeps the vendor's headers out of
// registry.h.
#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <map>
#include <string>
#include <vector>

#include "base/metrics/registry.h"
#include "base/mutex.h"

namespace replicant::metrics {

class Registry::Impl : public prometheus::Collectable {
 public:
  // The one that belongs to the family's type is in use.
  struct Series {
    Counter counter;
    Gauge gauge;
  };

  // The series with these labels, made if there is none.
  Series& FindOrAdd(const std::string& name, const std::string& help,
                    prometheus::MetricType type, const Labels& labels)
      EXCLUDES(mutex_);

  // Called by the vendor's server for each scrape.
  std::vector<prometheus::MetricFamily> Collect() const override
      EXCLUDES(mutex_);

 private:
  // All series of one name.
  struct Family {
    std::string help;
    prometheus::MetricType type;
    std::map<Labels, Series> series;
  };

  mutable Mutex mutex_;
  // by name; nodes stay where they are
  std::map<std::string, Family> families_ GUARDED_BY(mutex_);
};

}  // namespace replicant::metrics
