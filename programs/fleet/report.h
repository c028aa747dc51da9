#pragma once

#include <optional>

#include "base/config/command_line.h"
#include "programs/run/commands.h"

// The page that shows runs: `fleet --report RUN ... [--to FILE] [--serve
// ADDRESS]`. The Python package makes it.
namespace replicant::programs {

// Adds the option, for --help.
void AddReport(config::CommandLine& command_line);

// Becomes the Python program that makes the page, if the command line asks for
// one. Under Python `commands` name it; otherwise it is the python3 of the
// system, or the one that REPLICANT_PYTHON names. Throws ConfigError for a
// Python that is missing or has not the package.
std::optional<int> ReportRuns(int argc, const char* const* argv,
                              const Commands& commands);

}  // namespace replicant::programs
