#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/config/command_line.h"
#include "base/config/load.h"
#include "base/config/range.h"
#include "programs/commands.h"
#include "programs/registry.h"
#include "programs/run_config.h"

namespace replicant::programs {

// The inputs of a program.
struct Invocation {
  const Registry& registry;
  const Commands& commands;
  const config::Loaded<RunConfig>& loaded;

  const RunConfig& config() const { return loaded.config; }
};

// One program of a run: fleet, learner, actor, evaluator, replay, lockstep,
// export or plan.
struct Program {
  // First word of its messages and log lines.
  std::string name;
  // One sentence for --help.
  std::string about;
  // Adds options of this program alone.
  std::function<void(config::CommandLine&)> add_options =
      [](config::CommandLine&) {};
  // Returns the exit code.
  std::function<int(const Invocation&)> run;
  // Whether it chooses the run's ports, which the other programs read.
  bool announces_addresses = false;
  // Handles command lines that need no configuration and returns the exit code;
  // returns nothing for any other command line.
  std::function<std::optional<int>(int argc, const char* const* argv,
                                   const Registry& registry,
                                   const Commands& commands)>
      run_without_config =
          [](int, const char* const*, const Registry&,
             const Commands&) -> std::optional<int> { return std::nullopt; };
};

// The programs of this project.
std::vector<Program> AllPrograms();

// main() of a user's executable, which contains every program of a run: its
// first argument is the name of the program. Reads the command line and the
// configuration, sets up the log and returns the exit code of the program.
// --help and --print_config_docs print and return 0. An exception ends the
// program with one line on stderr, "NAME: MESSAGE", and 1. A role of a fleet
// ends with kExitConfig if the configuration is the cause: after a ConfigError,
// InvalidArgument or DeviceError.
//
// Idle OpenMP threads sleep, also in processes that the program starts.
int RunProgram(int argc, char** argv, const Registry& registry);

// The same for a program inside an interpreter. `executable` starts the roles
// of a fleet and takes the same arguments. Idle OpenMP threads sleep if the
// environment variable OMP_WAIT_POLICY says so.
int RunProgram(int argc, char** argv, const Registry& registry,
               const std::filesystem::path& executable);

// Returns the value of an option. Throws ConfigError unless `text` is a whole
// number in `range`.
int64_t ParseInteger(const std::string& option, const std::string& text,
                     config::Range<int64_t> range);

}  // namespace replicant::programs
