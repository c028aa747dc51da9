#include "fleet/fleet_config.h"

#include <algorithm>

namespace replicant::fleet {
namespace {

// A name that is a folder's on every file system, and no hidden one.
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
  reader.Field("name", &c.name, "what the run is called");
  reader.Field("dir", &c.dir,
               "folder of the run, new or empty; empty: runs/NAME-TIMESTAMP");
  reader.Field("seed", &c.seed, {0, INT64_MAX},
               "all random numbers of the run follow from it");
  if (!IsFolderName(c.name)) {
    reader.Error("name",
                 "want at most 100 letters, digits, '_', '-' and '.', and not "
                 "'.' first: a folder is called after it");
  }
  return c;
}

FleetConfig FleetConfig::Read(config::Reader& reader) {
  FleetConfig c;
  reader.Field("start_timeout_s", &c.start_timeout_s, {0.1, 36000.0},
               "a process that does not run so many seconds after its start is "
               "killed and has failed");
  reader.Field("heartbeat_timeout_s", &c.heartbeat_timeout_s, {1.0, 3600.0},
               "a process that is silent for so many seconds is killed and has "
               "failed; it should beat once a second");
  reader.Field("stop_timeout_s", &c.stop_timeout_s, {0.1, 36000.0},
               "seconds that a process has to drain before it is killed");
  reader.Field("progress_interval_s", &c.progress_interval_s, {0.1, 36000.0},
               "seconds between lines of progress where there is no terminal");
  reader.Field("exclusive_learner", &c.exclusive_learner,
               "whether the learner's processors are its own; false on a small "
               "machine where actors, held back by the replay's rate limiter, "
               "leave theirs idle");

  config::Reader restart =
      reader.Section("restart", "when a role that failed is started again");
  const auto read = [&](const char* role, const char* doc,
                        const RestartPolicy& defaults) {
    config::Reader section = restart.Section(role, doc);
    c.restart[role] = RestartPolicy::Read(section, defaults);
  };
  read("actor", "each of the actors", {.budget = 20});
  read("replay", "each of the replay services, from its checkpoint",
       {.budget = 5});
  read("learner", "each of the learners, from its checkpoint", {.budget = 5});
  read("server", "each of the parameter servers, from its own checkpoint",
       {.budget = 5});
  read("worker", "each of the learner's further workers", {.budget = 20});
  read("evaluator", "the evaluator", {.initial_backoff_s = 2.0});
  return c;
}

}  // namespace replicant::fleet
