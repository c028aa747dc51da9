// Runs a fleet of any roles:
//
//   fake_fleet FOLDER [--resume] [--hosts] [--set KEY=VALUE]...
//     [--role ROLE INDEX START_STAGE STOP_STAGE BUDGET
//      restart|done|completes|optional COMMAND...]...
//
// FOLDER is the run's; --hosts lets hosts join, which wait for the next start
// of a run that has failed. Ends with 0 if the run went well, else 1; prints
// the result as its last lines.
#include <chrono>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/config/load.h"
#include "base/log.h"
#include "fleet/run_fleet.h"

namespace replicant::fleet {
namespace {

struct FakeConfig {
  RunSection run;
  FleetConfig fleet;

  static FakeConfig Read(config::Reader& reader) {
    FakeConfig c;
    reader.Section("run", &c.run, "the run");
    reader.Section("fleet", &c.fleet, "its processes");
    return c;
  }
};

RoleSpec ReadRole(const std::vector<std::string>& words, size_t begin,
                  size_t end) {
  static const std::map<std::string, RoleSpec::OnSuccess> on_success = {
      {"restart", RoleSpec::OnSuccess::kRestart},
      {"done", RoleSpec::OnSuccess::kDone},
      {"completes", RoleSpec::OnSuccess::kCompletesRun},
      {"optional", RoleSpec::OnSuccess::kRestart}};
  RoleSpec spec;
  spec.id = {words.at(begin),
             static_cast<uint32_t>(std::stoul(words.at(begin + 1)))};
  spec.start_stage = std::stoi(words.at(begin + 2));
  spec.stop_stage = std::stoi(words.at(begin + 3));
  spec.restart = {.initial_backoff_s = 0.01,
                  .budget = std::stol(words.at(begin + 4))};
  spec.on_success = on_success.at(words.at(begin + 5));
  spec.is_optional = words.at(begin + 5) == "optional";
  for (size_t i = begin + 6; i < end; ++i) spec.command.push_back(words[i]);
  return spec;
}

int Main(const std::vector<std::string>& words) {
  const std::string& path = words.at(0);
  bool is_resume = false;
  std::vector<std::string> overrides = {"run.dir=" + path};
  FleetRun run;
  for (size_t i = 1; i < words.size(); ++i) {
    if (words[i] == "--resume") is_resume = true;
    if (words[i] == "--hosts") {
      run.hosts = {.endpoint = "tcp://127.0.0.1:*",
                   .pool = {.files = {}, .timeout = std::chrono::seconds(1)},
                   .is_restarted = true};
    }
    if (words[i] == "--set") overrides.push_back(words.at(++i));
    if (words[i] == "--role") {
      size_t end = i + 1;
      while (end < words.size() && words[end] != "--role") ++end;
      run.roles.push_back(ReadRole(words, i + 1, end));
      i = end - 1;
    }
  }
  InitLogging({.role = "fleet"});
  const auto loaded = config::Load<FakeConfig>(
      config::Document::FromText("defaults", "", overrides));
  run.config = loaded.config.fleet;
  run.progress = {{.kind = ProgressField::Kind::kCount,
                   .label = "steps",
                   .role = "actor",
                   .number = "steps"},
                  {.kind = ProgressField::Kind::kLimit}};
  RunFolder folder =
      is_resume ? RunFolder::Resume(path)
                : RunFolder::Create(loaded.config.run, loaded.resolved_yaml);
  const StopSignal stop;
  FleetStatus status;
  const RunResult result = RunFleet(run, stop, folder, status);
  std::fprintf(stderr, "%s: %s\n", ToString(result.status).c_str(),
               result.message.c_str());
  return result.ok() ? 0 : 1;
}

}  // namespace
}  // namespace replicant::fleet

int main(int argc, char** argv) {
  try {
    return replicant::fleet::Main({argv + 1, argv + argc});
  } catch (const std::exception& e) {
    std::fprintf(stderr, "fleet: %s\n", e.what());
    return 1;
  }
}
