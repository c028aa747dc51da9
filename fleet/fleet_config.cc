#include "fleet/fleet_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace replicant::fleet {
namespace {

// Whether every file system allows a folder of this name and shows it.
bool IsFolderName(const std::string& name) {
  return !name.empty() && name.size() <= 100 && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
         });
}

}  // namespace

RunSection RunSection::Read(config::Reader& reader) {
  RunSection c;
  reader.Field("name", &c.name, "name of the run");
  reader.Field("dir", &c.dir,
               "run folder, new or empty; empty: runs/NAME-TIMESTAMP for a "
               "fleet, runs/NAME for lockstep and for a role started by hand");
  reader.Field("seed", &c.seed, {0, INT64_MAX},
               "seed of all random numbers of the run");
  reader.Field(
      "key_file", &c.key_file,
      "file with the CURVE key pair that all processes of the run share; auto: "
      "RUN/run.key, which a fleet creates, or none if that file does not "
      "exist; empty: none. Without a key pair, every socket of the run stays "
      "on loopback and ipc, open to all users of the host");
  if (!IsFolderName(c.name)) {
    reader.Error("name",
                 "must be 1 to 100 letters, digits, '_', '-' and '.', not "
                 "starting with '.', since it names a folder");
  }
  return c;
}

FleetConfig FleetConfig::Read(config::Reader& reader) {
  FleetConfig c;
  reader.Field("start_timeout_s", &c.start_timeout_s, {0.1, 36000.0},
               "maximum seconds from the start of a process, or from the last "
               "progress in its heartbeats (a replay restoring its "
               "checkpoint), to its first heartbeat in state running; a slower "
               "process is killed and counts as failed");
  reader.Field("heartbeat_timeout_s", &c.heartbeat_timeout_s, {1.0, 3600.0},
               "seconds without a heartbeat after which a process is killed "
               "and counts as failed; processes send one a second");
  reader.Field("stop_timeout_s", &c.stop_timeout_s, {0.1, 36000.0},
               "seconds for a process to drain before it is killed");
  reader.Field(
      "last_evaluation_timeout_s", &c.last_evaluation_timeout_s, {0.1, 36000.0},
      "seconds for the evaluation of the last checkpoint after all roles have "
      "ended; a longer evaluation is aborted with a warning");
  reader.Field("progress_interval_s", &c.progress_interval_s, {0.1, 36000.0},
               "seconds between progress lines when stderr is not a terminal");
  reader.Field(
      "metrics_address", &c.metrics_address,
      "ADDRESS:PORT at which the fleet serves the numbers of every role to "
      "Prometheus, for example 127.0.0.1:9464; empty: none. Any address other "
      "than loopback serves every host that reaches it");
  reader.Field(
      "copy_command", &c.copy_command,
      "command that copies the run's folder, {run}, to where it is kept, for "
      "example: rclone sync --exclude run.key {run} s3:lab/run. It runs after "
      "each checkpoint and at the end; empty: none. Blanks separate words; "
      "there are no quotes");
  reader.Field(
      "fetch_command", &c.fetch_command,
      "command that brings the run's folder, {run}, back, for example: rclone "
      "copy s3:lab/run {run}. fleet --config runs it if run.dir holds no run, "
      "and resumes the run that it brings; it must succeed where there is none "
      "yet; empty: none");
  for (const auto& [key, command] :
       {std::pair("copy_command", c.copy_command),
        std::pair("fetch_command", c.fetch_command)}) {
    if (command.empty() || command.find("{run}") != std::string::npos) continue;
    reader.Error(key, fmt::format("'{}' has no {{run}}, which stands for the "
                                  "run's folder",
                                  command));
  }
  reader.Field("exclusive_learner", &c.exclusive_learner,
               "whether no other role runs on the learner's processors; false "
               "for a small machine on which the replay's rate limiter would "
               "leave the actors' processors idle");

  config::Reader restart =
      reader.Section("restart", "restarts of failed roles");
  const auto read = [&](const char* role, const char* doc,
                        const RestartPolicy& defaults) {
    config::Reader section = restart.Section(role, doc);
    c.restart[role] = RestartPolicy::Read(section, defaults);
  };
  read("actor", "every actor", {.budget = 20});
  read("replay", "every replay service; restores its checkpoint",
       {.budget = 5});
  read("learner", "every learner; restores its checkpoint", {.budget = 5});
  read("server", "every parameter server; restores its own checkpoint",
       {.budget = 5});
  read("worker", "every worker except the learner", {.budget = 20});
  read("inference", "the inference server", {.budget = 20});
  read("evaluator", "the evaluator", {.initial_backoff_s = 2.0});
  return c;
}

}  // namespace replicant::fleet
