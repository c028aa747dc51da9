#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/config/command_line.h"
#include "core/config/load.h"
#include "core/config/range.h"
#include "programs/commands.h"
#include "programs/registry.h"
#include "programs/run_config.h"

namespace replicant::programs {

// The parts of a run that a program is given.
struct Invocation {
  const Registry& registry;
  const Commands& commands;
  const config::Loaded<RunConfig>& loaded;

  const RunConfig& config() const { return loaded.config; }
};

// One program of a run: fleet, learner, actor, evaluator, replay, lockstep,
// export or plan.
struct Program {
  // The first word of its messages and of the lines of its log.
  std::string name;
  // A sentence for --help.
  std::string about;
  // Adds the options that only this program has.
  std::function<void(config::CommandLine&)> add_options =
      [](config::CommandLine&) {};
  // Returns the exit code.
  std::function<int(const Invocation&)> run;
  // Whether it chooses the ports of a run, which the others read.
  bool announces_addresses = false;
  // Handles a command line that needs no configuration of this program, and
  // returns the exit code; returns nothing for any other command line.
  std::function<std::optional<int>(int argc, const char* const* argv,
                                   const Registry& registry,
                                   const Commands& commands)>
      run_without_config =
          [](int, const char* const*, const Registry&,
             const Commands&) -> std::optional<int> { return std::nullopt; };
};

// The programs of this project.
std::vector<Program> AllPrograms();

// main() of a user's executable, which is every program of a run: its first
// argument is the name of the program. Reads the command line and the
// configuration, sets up the log and returns the exit code of the program.
// --help and --print_config_docs print and return 0. An exception ends the
// program with one line on stderr, "NAME: MESSAGE", and 1. A role of a fleet
// ends with kExitConfig if the exception is a ConfigError, InvalidArgument or
// DeviceError, whose cause is the configuration.
//
// Idle OpenMP threads sleep, in the processes that a program starts too.
int RunProgram(int argc, char** argv, const Registry& registry);

// The same for a program inside an interpreter: the roles of a fleet are
// started by `executable`, which takes the same arguments. Idle OpenMP threads
// sleep if the environment variable OMP_WAIT_POLICY says so.
int RunProgram(int argc, char** argv, const Registry& registry,
               const std::filesystem::path& executable);

// Returns the value of an option. Throws ConfigError unless `text` is a whole
// number in `range`.
int64_t ParseInteger(const std::string& option, const std::string& text,
                     config::Range<int64_t> range);

}  // namespace replicant::programs
