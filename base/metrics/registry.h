#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>

namespace replicant::metrics {

// A total that only grows: steps, bytes, errors.
//
// Thread-safety: any thread; lock-free. Whole numbers are exact to 2^53.
class Counter {
 public:
  // `amount` is finite and >= 0 (checked).
  void Increment(double amount = 1.0);
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0.0};
};

// A value that goes up and down: items in a table, a loss, a temperature.
//
// Thread-safety: any thread; lock-free.
class Gauge {
 public:
  void Set(double value) { value_.store(value, std::memory_order_relaxed); }
  void Add(double amount) {
    value_.fetch_add(amount, std::memory_order_relaxed);
  }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0.0};
};

// Labels distinguish the series of one metric: {{"actor", "3"}}.
using Labels = std::map<std::string, std::string>;

// The metrics of a process, by name and labels.
//
//   Registry registry;
//   Counter& steps = registry.AddCounter(
//       "replicant_actor_env_steps_total", "Control steps taken.");
//   steps.Increment();
//
// Adding a metric again with the same name, labels and kind returns the same
// object. References stay valid as long as the registry.
//
// Names follow docs/metrics.md: base units (seconds, bytes) as a suffix, and
// "_total" for a counter and for nothing else. Label values are made valid
// UTF-8.
//
// The Add...() methods throw InvalidArgument, leaving the registry unchanged,
// for a bad name or label name, a help text that is empty or has several lines,
// a name that exists with another kind or help, and more than 10000 series of
// one name: a label must not be a value that never repeats.
//
// Thread-safety: any thread. Adding takes a lock: keep the reference.
class Registry {
 public:
  Registry();
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  Counter& AddCounter(const std::string& name, const std::string& help,
                      const Labels& labels = {});
  Gauge& AddGauge(const std::string& name, const std::string& help,
                  const Labels& labels = {});

  // All values in Prometheus' text format 0.0.4, sorted by name and labels.
  std::string ToText() const;

 private:
  friend class Exposer;
  class Impl;
  // shared with the server threads of an Exposer
  std::shared_ptr<Impl> impl_;
};

}  // namespace replicant::metrics
