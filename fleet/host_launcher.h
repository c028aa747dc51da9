#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/process.h"
#include "fleet/host_pool.h"

namespace replicant::fleet {

// Keeps one agent running on each host of a list, by a command such as ssh.
//
// The agent reads its launcher's endpoint and key from standard input, so that
// they appear on no command line and in no file, and ends with that input. The
// input ends when this process ends, even by a crash. A command that ends is
// restarted after a pause that doubles up to 30 s, so a lost host joins again
// without help.
//
// Thread-safety: only the thread that made it; the agents die with that
// thread.
class HostLauncher {
 public:
  struct Host {
    std::string name;
    std::vector<std::string> command;
  };

  // `ticket` is written to the input of each agent. Output is appended to
  // `log_folder`/host-NAME.1.log. `pool` and `clock` outlive the launcher.
  HostLauncher(std::vector<Host> hosts, std::string ticket,
               const std::filesystem::path& log_folder, HostPool* pool,
               Clock* clock = &Clock::Real());
  ~HostLauncher();
  HostLauncher(const HostLauncher&) = delete;
  HostLauncher& operator=(const HostLauncher&) = delete;

  // Starts the commands that are due; does not wait. Throws ConfigError if a
  // command cannot be executed for the first time.
  void Step();

  // Name and log of each host.
  std::vector<std::pair<std::string, std::filesystem::path>> Logs() const;

 private:
  struct Member {
    Host host;
    std::filesystem::path log;
    std::unique_ptr<Process> process;
    int input_fd = -1;         // the other end of its standard input
    int64_t num_failures = 0;  // in a row
    Clock::TimePoint start_at;
    Clock::TimePoint started_at;
  };

  void Start(Member& member);
  void HandleEnd(Member& member, const ExitStatus& status);
  // Sets the time of the next start.
  void BackOff(Member& member, const std::string& why);
  static void Close(Member& member);

  const std::string ticket_;
  HostPool& pool_;
  Clock& clock_;
  std::vector<Member> members_;
};

// The text for an agent's standard input: the endpoint of its launcher, and
// the file of the key pair that both share. Throws IoError as ReadKeyPair()
// does.
std::string MakeTicket(const std::string& endpoint,
                       const std::filesystem::path& key_file);

}  // namespace replicant::fleet
