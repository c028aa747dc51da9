#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/config/command_line.h"
#include "core/config/load.h"
#include "core/config/range.h"
#include "programs/run_config.h"

namespace replicant::programs {

// What a program that takes part in a training says of itself.
struct Program {
  std::string name;   // "learner": begins its messages and lines of the log
  std::string about;  // a sentence for --help
  // Adds the options that are its own.
  std::function<void(config::CommandLine&)> add_options =
      [](config::CommandLine&) {};
};

// main() of such a program: reads the command line and the configuration, sets
// the log up and returns what `run` returns. What --help and
// --print_config_docs ask for is printed instead. An exception ends it with one
// line on stderr, "NAME: MESSAGE", and 1.
//
// Idle threads of OpenMP sleep, in programs that this one starts too.
int RunProgram(int argc, char** argv, const Program& program,
               const std::function<int(const config::Loaded<RunConfig>&)>& run);

// The value of an option. Throws ConfigError unless `text` is a whole number in
// `range`.
int64_t ParseInteger(const std::string& option, const std::string& text,
                     config::Range<int64_t> range);

}  // namespace replicant::programs
