#include "programs/program.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <exception>
#include <system_error>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/openmp.h"

namespace replicant::programs {
namespace {

int Run(int argc, char** argv, const Program& program,
        const std::function<int(const config::Loaded<RunConfig>&)>& run) {
  UsePassiveOpenMp(argv);
  config::CommandLine command_line(program.name, program.about);
  program.add_options(command_line);
  const config::Arguments arguments =
      command_line.Parse(argc, argv, config::Describe<RunConfig>());
  if (!arguments.text_to_print.empty()) {
    std::fputs(arguments.text_to_print.c_str(), stdout);
    return 0;
  }
  auto loaded = config::Load<RunConfig>(
      config::Document::FromFile(arguments.config_file, arguments.overrides));
  loaded.config.log.role = program.name;
  InitLogging(loaded.config.log);
  return run(loaded);
}

}  // namespace

int RunProgram(
    int argc, char** argv, const Program& program,
    const std::function<int(const config::Loaded<RunConfig>&)>& run) {
  try {
    return Run(argc, argv, program, run);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", program.name.c_str(), e.what());
    return 1;
  }
}

int64_t ParseInteger(const std::string& option, const std::string& text,
                     config::Range<int64_t> range) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || parsed != end || !range.Contains(value)) {
    throw ConfigError(fmt::format("{} {}: want a whole number in [{}, {}]",
                                  option, text, range.min, range.max));
  }
  return value;
}

}  // namespace replicant::programs
