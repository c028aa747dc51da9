#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/config/reader.h"
#include "fleet/restart_policy.h"

namespace replicant::fleet {

// Section `run`: name, folder and seed of a run.
struct RunSection {
  std::string name = "run";
  std::string dir;  // empty: runs/NAME-TIMESTAMP
  int64_t seed = 1;
  // File with the key pair that all processes of the run share. "auto":
  // RUN/run.key, which a fleet creates; empty: none.
  std::string key_file = "auto";

  static RunSection Read(config::Reader& reader);
};

// Section `fleet`: supervision of the processes of a run.
struct FleetConfig {
  double start_timeout_s = 60.0;
  double heartbeat_timeout_s = 15.0;
  double stop_timeout_s = 60.0;
  double last_evaluation_timeout_s = 1800.0;
  double progress_interval_s = 30.0;
  std::string metrics_address;  // empty: none
  // Commands with {run} that keep the run's folder elsewhere, and bring it back
  // (fleet/run_copy.h); empty: none.
  std::string copy_command;
  std::string fetch_command;
  // whether no other role runs on the learner's processors
  bool exclusive_learner = true;
  // by role; FleetConfig::Read() fills in every role
  std::map<std::string, RestartPolicy> restart;

  static FleetConfig Read(config::Reader& reader);
};

}  // namespace replicant::fleet
