#include "programs/fleet/report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/process.h"

namespace replicant::programs {
namespace {

constexpr std::string_view kReport = "--report";

// The Python of the system, with the package.
std::string FindPython() {
  const char* const given = std::getenv("REPLICANT_PYTHON");
  std::string python = given == nullptr ? "python3" : given;
  const char* const hint =
      "hint: pip install \"WHEEL[report]\" with the wheel that scripts/wheel "
      "builds, or let REPLICANT_PYTHON name the Python that has it";
  try {
    const CommandResult result = replicant::RunCommand(
        {.command =
             {python, "-c",
              "import importlib.util, sys; "
              "sys.exit(importlib.util.find_spec('replicant') is None)"}},
        std::chrono::minutes(1));
    if (result.status.ok()) return python;
  } catch (const IoError& error) {
    throw ConfigError(
        fmt::format("--report: want Python: {}; {}", error.what(), hint));
  }
  throw ConfigError(fmt::format(
      "--report: {} has not the package replicant, which makes the page; {}",
      python, hint));
}

}  // namespace

void AddReport(config::CommandLine& command_line) {
  static std::string ignored;
  command_line.AddOption(
      std::string(kReport), &ignored,
      "write a page that shows runs, or the runs of a sweep, side by side: "
      "--report RUN ... [--to FILE] [--serve ADDRESS]; by the Python package");
}

std::optional<int> ReportRuns(int argc, const char* const* argv,
                              const Commands& commands) {
  if (argc < 2 || argv[1] != kReport) return std::nullopt;
  // "python -m replicant fleet" under Python
  std::vector<std::string> words = commands.Of("fleet");
  words.pop_back();
  const bool is_python = std::ranges::find(words, "-m") != words.end();
  if (!is_python) words = {FindPython(), "-m", "replicant"};
  words.emplace_back("report");
  words.insert(words.end(), argv + 2, argv + argc);
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  throw IoError::FromErrno("execute", words[0], errno);
}

}  // namespace replicant::programs
