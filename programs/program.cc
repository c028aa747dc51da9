#include "programs/program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string_view>

#include "base/config/edit.h"
#include "base/error.h"
#include "base/file_limit.h"
#include "base/log.h"
#include "base/process.h"
#include "engine/runtime/numeric_check.h"
#include "fleet/protocol/heartbeat_sender.h"
#include "fleet/role.h"
#include "fleet/version.h"
#include "programs/actor/actor_program.h"
#include "programs/built_in_program.h"
#include "programs/check_data/check_data_program.h"
#include "programs/evaluator/evaluator_program.h"
#include "programs/export/export_program.h"
#include "programs/fleet/fleet_program.h"
#include "programs/learner/learner_program.h"
#include "programs/lockstep/lockstep_program.h"
#include "programs/plan/plan_program.h"
#include "programs/replay/replay_program.h"
#include "programs/run/check_resume.h"

namespace replicant::programs {
namespace {

std::filesystem::path ThisExecutable() {
  return std::filesystem::read_symlink("/proc/self/exe");
}

int Run(const Program& program, int argc, char** argv, const Registry& registry,
        const Commands& commands) {
  if (const auto code =
          program.run_without_config(argc, argv, registry, commands)) {
    return *code;
  }
  config::CommandLine command_line(program.name, program.about);
  program.add_options(command_line);
  command_line.AddVersion(fleet::Version());
  const config::Arguments arguments =
      command_line.Parse(argc, argv, DescribeRunConfig(registry));
  if (!arguments.text_to_print.empty()) {
    std::fputs(arguments.text_to_print.c_str(), stdout);
    return 0;
  }
  auto loaded = LoadRunConfig(
      config::Document::FromFile(arguments.config_file, arguments.overrides),
      registry);
  if (!program.announces_addresses) {
    ResolveAddresses(RunFolderOf(loaded.config), &loaded.config);
  }
  loaded.config.log.role = program.name;
  InitLogging(loaded.config.log);
  // a value that was found wrong after loading has a place, too
  const auto with_place = [&loaded](const std::exception& error) {
    return config::WithPlace(loaded.document, error.what());
  };
  try {
    return program.run({registry, commands, loaded});
  } catch (const RunIsComplete&) {
    throw;
  } catch (const ConfigError& error) {
    throw ConfigError(with_place(error));
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(with_place(error));
  } catch (const IoError& error) {
    throw IoError(with_place(error));
  }
}

// Finds a program; null if there is no program with the name.
const Program* Find(const std::vector<Program>& programs,
                    std::string_view name) {
  const auto found = std::ranges::find(programs, name, &Program::name);
  return found == programs.end() ? nullptr : &*found;
}

// Whether the cause of an exception is the configuration.
bool IsOfConfiguration(const std::exception& e) {
  return dynamic_cast<const ConfigError*>(&e) != nullptr ||
         dynamic_cast<const InvalidArgument*>(&e) != nullptr;
}

// A supervisor starts a role no more after kExitConfig and kExitDevice, and
// Kubernetes a launcher after kExitConfig. A run that is complete has no
// mistake.
int ExitCodeOf(const std::string& name, const std::exception& e) {
  const bool is_role =
      !fleet::HeartbeatSenderOptions::FromEnvironment({}).endpoint.empty();
  if (is_role && dynamic_cast<const runtime::NumericError*>(&e) != nullptr) {
    return fleet::kExitData;
  }
  if (is_role && dynamic_cast<const DeviceError*>(&e) != nullptr) {
    return kExitDevice;
  }
  const bool is_mistake =
      IsOfConfiguration(e) && dynamic_cast<const RunIsComplete*>(&e) == nullptr;
  return (is_role || name == "fleet") && is_mistake ? kExitConfig : 1;
}

// Opens /dev/null as each of stdin, stdout and stderr that is closed. The next
// file would take its descriptor, and with it the lines of the log.
void OpenStandardStreams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    // the lowest free descriptor is `fd`
    if (::open("/dev/null", O_RDWR) != fd) {
      throw IoError::FromErrno("open", "/dev/null", errno);
    }
  }
}

// Runs `main`; an exception becomes a line on stderr and an exit code.
int Guard(const std::string& name, const std::function<int()>& main) {
  try {
    OpenStandardStreams();
    RaiseFileLimit();
    return main();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), e.what());
    return ExitCodeOf(name, e);
  }
}

}  // namespace

std::vector<Program> AllPrograms() {
  return {FleetProgram(),     LearnerProgram(), ActorProgram(),
          EvaluatorProgram(), ReplayProgram(),  LockstepProgram(),
          ExportProgram(),    PlanProgram(),    CheckDataProgram()};
}

int RunProgram(int argc, char** argv, const Registry& registry) {
  return RunProgram(argc, argv, registry, {ThisExecutable().string()});
}

int RunProgram(int argc, char** argv, const Registry& registry,
               const std::vector<std::string>& command) {
  const std::vector<Program> programs = AllPrograms();
  const Program* const program = argc < 2 ? nullptr : Find(programs, argv[1]);
  if (program == nullptr) {
    std::vector<std::string> names;
    names.reserve(programs.size());
    for (const Program& one : programs) names.push_back(one.name);
    std::fprintf(stderr, "%s: the first argument is the program: %s\n",
                 std::filesystem::path(argv[0]).filename().c_str(),
                 fmt::format("{}", fmt::join(names, ", ")).c_str());
    return 1;
  }
  return Guard(program->name, [&] {
    return Run(*program, argc - 1, argv + 1, registry,
               Commands::OfExecutable(command));
  });
}

int RunBuiltInProgram(const char* name, int argc, char** argv) {
  return Guard(name, [&] {
    const Registry registry = Registry::BuiltIn();
    const std::vector<Program> programs = AllPrograms();
    const Program* const program = Find(programs, name);
    if (program == nullptr) {
      throw InvalidArgument(fmt::format("no program '{}'", name));
    }
    return Run(*program, argc, argv, registry,
               Commands::InFolder(ThisExecutable().parent_path()));
  });
}

}  // namespace replicant::programs
