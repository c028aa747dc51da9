#pragma once

#include <sys/types.h>
#include <time.h>

#include <nlohmann/json.hpp>
#include <string>

#include "replay/format/batch_form.h"
#include "replay/table/shard.h"

namespace replicant::replay {

double SecondsOf(clockid_t clock);

// A service in a separate process, on a port of this host. No thread may run
// while it is made.
class ServiceProcess {
 public:
  // Throws IoError or CommError.
  explicit ServiceProcess(const ShardConfig& config);
  ~ServiceProcess();
  ServiceProcess(const ServiceProcess&) = delete;
  ServiceProcess& operator=(const ServiceProcess&) = delete;

  const std::string& endpoint() const { return endpoint_; }
  const StepShape& shape() const { return config_.shape; }
  // Of its first table.
  BatchForm form() const { return config_.tables[0].n_step.form(); }
  // Of its processor so far.
  double CpuSeconds() const { return SecondsOf(cpu_clock_); }
  nlohmann::json Status() const;

 private:
  const ShardConfig config_;
  pid_t pid_ = -1;
  clockid_t cpu_clock_ = CLOCK_PROCESS_CPUTIME_ID;
  std::string endpoint_;
};

}  // namespace replicant::replay
