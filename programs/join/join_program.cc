#include "programs/join/join_program.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/fs.h"
#include "base/process.h"
#include "base/rpc/curve.h"
#include "fleet/host_agent.h"
#include "fleet/run_folder.h"
#include "programs/roles/fleet_roles.h"
#include "programs/run/invocation.h"
#include "programs/run/make_workload.h"
#include "programs/run/shell_word.h"

namespace replicant::programs {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kJoin = "--join";
constexpr const char* kInput = "-";

struct JoinOptions {
  std::string target;
  std::string key_file;
  std::string host;
  std::string role = "actor";
  std::string keep;
  int64_t actors = 0;
  int64_t join_timeout_s = 600;
};

// Whether a host may offer room for the role: many processes of "actor", or one
// process.
bool IsOffer(const std::string& role) {
  if (role == "actor" || role == "replay" || role == "inference-0") return true;
  for (const std::string_view part : {"replay-", "worker-", "server-"}) {
    if (!role.starts_with(part)) continue;
    const std::string_view index = std::string_view(role).substr(part.size());
    return !index.empty() && index.size() < 7 &&
           std::ranges::all_of(index,
                               [](char c) { return c >= '0' && c <= '9'; });
  }
  return false;
}

JoinOptions ParseJoin(int argc, const char* const* argv) {
  JoinOptions options;
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() < 2) {
    throw ConfigError("--join: want the folder of a run, or tcp://HOST:PORT");
  }
  options.target = words[1];
  options.host = HostAndPid();
  for (size_t i = 2; i + 1 < words.size() + 1; i += 2) {
    const std::string& name = words[i];
    if (i + 1 == words.size()) throw ConfigError(name + ": want a value");
    const std::string& value = words[i + 1];
    if (name == "--key_file") {
      options.key_file = value;
    } else if (name == "--host") {
      options.host = value;
    } else if (name == "--role") {
      if (!IsOffer(value)) {
        throw ConfigError(fmt::format(
            "--role {}: a host runs no such role; allowed: actor, replay, "
            "replay-N for shard N of the replay, worker-N, server-N, "
            "inference-0",
            value));
      }
      options.role = value;
    } else if (name == "--keep") {
      options.keep = std::filesystem::absolute(value);
    } else if (name == "--actors") {
      options.actors = ParseInteger(name, value, {0, 10000});
    } else if (name == "--join_timeout_s") {
      options.join_timeout_s = ParseInteger(name, value, {1, 1'000'000});
    } else {
      throw ConfigError(fmt::format(
          "--join {}: '{}' does not belong there; allowed: --key_file, --host, "
          "--actors, --role, --keep, --join_timeout_s",
          options.target, name));
    }
  }
  if (options.target.find("://") != std::string::npos &&
      options.key_file.empty()) {
    throw ConfigError(fmt::format(
        "--join {}: want --key_file FILE, a copy of the run's run.key with "
        "mode 0600",
        options.target));
  }
  return options;
}

// Reads a ticket from the standard input: the endpoint, then the lines of the
// key file, then "end".
fleet::LauncherAddress ReadTicket(const std::filesystem::path& folder) {
  // byte by byte: the rest is the lease
  std::string text;
  constexpr std::string_view kEnd = "\nend\n";
  for (char byte = 0; !text.ends_with(kEnd) && ::read(0, &byte, 1) == 1;) {
    text.push_back(byte);
    if (text.size() > 8192) break;
  }
  const size_t line = text.find('\n');
  if (!text.ends_with(kEnd) || line == std::string::npos) {
    throw ConfigError(
        "--join -: want an endpoint and a key on the standard input, as a "
        "fleet under ssh gives them");
  }
  fleet::LauncherAddress launcher{.endpoint = text.substr(0, line),
                                  .key_file = folder / "run.key"};
  const size_t begin = line + 1;
  AtomicWriteFile(launcher.key_file,
                  text.substr(begin, text.size() - kEnd.size() + 1 - begin),
                  0600);
  return launcher;
}

fleet::LauncherAddress FindInFolder(const JoinOptions& join) {
  const std::filesystem::path run = fleet::RunFolder::Find(join.target);
  const std::string endpoint = AnnouncedAddress(run, kJoinPart);
  if (endpoint.empty()) {
    throw IoError(fmt::format(
        "{}: no fleet has announced there that hosts may join; hint: its "
        "cluster.backend is local",
        run.string()));
  }
  return {.endpoint = endpoint,
          .key_file = join.key_file.empty() ? KeyFileOfRun(run)
                                            : fs::path(join.key_file)};
}

}  // namespace

void AddJoin(config::CommandLine& command_line) {
  // for --help; JoinRun() acts on the option before it is read here
  static std::string ignored;
  command_line.AddOption(
      "--join", &ignored,
      "run actors of the run in this folder on this host: --join RUN "
      "[--actors N] [--host NAME] "
      "[--role actor|replay|replay-N|worker-N|server-N|inference-0] "
      "[--keep FOLDER] [--join_timeout_s S], or tcp://HOST:PORT "
      "--key_file FILE in the place of RUN");
}

std::optional<int> JoinRun(int argc, const char* const* argv,
                           const Registry& registry, const Commands& commands) {
  if (argc < 2 || argv[1] != kJoin) return std::nullopt;
  const JoinOptions join = ParseJoin(argc, argv);
  InitLogging({.role = "agent"});
  const StopSignal stop;
  const TemporaryFolder folder("replicant-ticket");
  fleet::HostAgentOptions options{
      .find_launcher = {},
      .make_command = {},
      .host = join.host,
      .role = join.role,
      .slots = join.role == "actor" ? static_cast<uint32_t>(join.actors) : 1,
      .join_timeout = std::chrono::seconds(join.join_timeout_s)};
  // the learner may read its variables before it ends, and it saves them
  if (join.role.starts_with("server-")) {
    options.drain_timeout = std::chrono::seconds(20);
  }
  const bool is_address = join.target.find("://") != std::string::npos;
  if (join.target == kInput) {
    options.lease_fd = STDIN_FILENO;
    const fleet::LauncherAddress launcher = ReadTicket(folder.path());
    options.find_launcher = [launcher] {
      return fleet::LauncherAddress(launcher);
    };
  } else if (is_address) {
    options.find_launcher = [&join] {
      return fleet::LauncherAddress{join.target, join.key_file};
    };
  } else {
    options.find_launcher = [&join] { return FindInFolder(join); };
    options.is_launcher_fixed = false;
    options.is_over = [&join] {
      return fleet::RunFolder::IsOver(fleet::RunFolder::Find(join.target));
    };
  }
  options.make_command = [&](const fleet::RoleId& id,
                             const std::filesystem::path& files) {
    return JoinedCommand(id, files, join.keep, registry, commands);
  };
  const bool is_good = fleet::RunHostAgent(options, stop);
  // Kubernetes has another pod for one that it drains, unless that ends with 0
  const bool is_drained = is_address && stop.is_termination();
  return is_good && !is_drained ? 0 : 1;
}

std::vector<std::string> JoinedCommand(const fleet::RoleId& id,
                                       const fs::path& files,
                                       const fs::path& keep,
                                       const Registry& registry,
                                       const Commands& commands) {
  const fs::path config_file = files / "config.yaml";
  const auto loaded =
      LoadRunConfig(config::Document::FromFile(config_file), registry);
  const Invocation invocation{
      .registry = registry, .commands = commands, .loaded = loaded};
  const RolePlan plan{
      .config = loaded.config,
      .commands = commands,
      // a replay needs to know the size of a step; the launcher has checked
      // the run, which has files that are not on this host
      .task = id.role == "replay" ? TaskOf(invocation) : agents::TaskSpec{},
      .run_folder = files,
      .storage_folder = keep.empty() ? files : keep,
      .config_file = config_file,
      .key_file = files / "run.key",
      .began_ms = ""};
  return MakeRole({.request = {.id = id}, .cpus = {}}, plan).command;
}

std::vector<fleet::AgentFile> FilesForHosts(const fs::path& run,
                                            const fs::path& config_file) {
  std::vector<fleet::AgentFile> files;
  uint64_t num_bytes = 0;
  const auto add = [&](const std::string& name, const fs::path& file) {
    num_bytes += fs::file_size(file);
    if (num_bytes > fleet::kMaxAgentFilesBytes ||
        files.size() >= fleet::kMaxAgentFiles) {
      throw ConfigError(fmt::format(
          "{}: the files that other hosts need, most of them the model's, are "
          "more than {} MiB, or more than {} files; hint: smaller meshes and "
          "textures, or cluster.backend local",
          run.string(), fleet::kMaxAgentFilesBytes >> 20,
          fleet::kMaxAgentFiles));
    }
    files.push_back({name, ReadFile(file, fleet::kMaxAgentFilesBytes)});
  };
  add("config.yaml", config_file);
  for (const auto& entry : fs::recursive_directory_iterator(run)) {
    const std::string name = entry.path().lexically_relative(run);
    if (entry.is_regular_file() &&
        (name == "addresses.yaml" || name == kRendezvousKeyName ||
         name.starts_with("model"))) {
      add(name, entry.path());
    }
  }
  return files;
}

std::vector<fleet::HostLauncher::Host> LaunchedAgents(
    const RunConfig& config, const Commands& commands) {
  const std::string& programs = config.cluster.programs;
  const std::vector<std::string> fleet_command =
      (programs.empty() ? commands : commands.At(programs)).Of("fleet");
  std::vector<fleet::HostLauncher::Host> agents;
  const auto add = [&](const fleet::HostConfig& host, const std::string& name,
                       const std::vector<std::string>& options) {
    std::vector<std::string> words = fleet_command;
    words.insert(words.end(), {std::string(kJoin), kInput, "--host", name});
    words.insert(words.end(), options.begin(), options.end());
    // ssh gives the words to a shell
    for (std::string& word : words) word = ShellWord(word);
    agents.push_back({.name = name,
                      .command = fleet::FillTemplate(config.cluster.ssh_command,
                                                     words, host.name)});
  };
  // a separate agent for each part: it comes and goes with the part
  const auto add_part = [&](const fleet::HostConfig& host,
                            const std::string& role, const std::string& keep) {
    std::vector<std::string> options = {"--role", role};
    if (!keep.empty()) options.insert(options.end(), {"--keep", keep});
    add(host, host.name + "/" + role, options);
  };
  int num_shards = 0;
  int num_servers = 0;
  int num_workers = 1;  // with the learner
  for (const fleet::HostConfig& host : config.cluster.hosts) {
    if (config.has_actors()) {
      add(host, host.name, {"--actors", std::to_string(host.actors)});
    }
    if (!host.shard_address.empty()) {
      add_part(host, fmt::format("replay-{}", num_shards++), host.shard_folder);
    }
    if (host.worker)
      add_part(host, fmt::format("worker-{}", num_workers++), "");
    if (!host.server_address.empty()) {
      add_part(host, fmt::format("server-{}", num_servers++),
               host.server_folder);
    }
    if (!host.inference_address.empty()) add_part(host, "inference-0", "");
  }
  return agents;
}

}  // namespace replicant::programs
