#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/config/command_line.h"
#include "base/config/load.h"
#include "base/config/range.h"
#include "programs/run/commands.h"
#include "programs/run/registry.h"
#include "programs/run/run_config.h"

namespace replicant::programs {

// The inputs of a program.
struct Invocation {
  const Registry& registry;
  const Commands& commands;
  const config::Loaded<RunConfig>& loaded;

  const RunConfig& config() const { return loaded.config; }
};

// One program of a run: fleet, learner, actor, evaluator, replay, lockstep,
// export, plan or check-data.
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

// Returns the value of an option. Throws ConfigError unless `text` is a whole
// number in `range`.
int64_t ParseInteger(const std::string& option, const std::string& text,
                     config::Range<int64_t> range);

}  // namespace replicant::programs
