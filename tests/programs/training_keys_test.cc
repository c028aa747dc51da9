// The sockets of whole trainings by the program `fleet`: who is let in.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/rpc/curve.h"
#include "base/rpc/server.h"
#include "tests/programs/training_fixture.h"

namespace replicant {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A socket that listens, as connect() takes it.
struct Listener {
  std::string name;
  sockaddr_storage address{};
  socklen_t size = 0;
};

Listener TcpListener(const std::string& host_and_port, bool is_ipv6) {
  // hexadecimal: words of the host's byte order, then the port
  const size_t colon = host_and_port.find(':');
  const auto port = static_cast<uint16_t>(
      std::stoul(host_and_port.substr(colon + 1), nullptr, 16));
  uint32_t words[4] = {};
  for (size_t i = 0; 8 * i < colon; ++i) {
    words[i] = static_cast<uint32_t>(
        std::stoul(host_and_port.substr(8 * i, 8), nullptr, 16));
  }
  Listener listener{.name = "tcp " + host_and_port};
  if (is_ipv6) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(port);
    std::memcpy(&address.sin6_addr, words, sizeof(words));
    std::memcpy(&listener.address, &address, listener.size = sizeof(address));
  } else {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = words[0];
    std::memcpy(&listener.address, &address, listener.size = sizeof(address));
  }
  return listener;
}

Listener UnixListener(std::string path) {
  Listener listener{.name = "unix " + path};
  if (path.front() == '@') path.front() = '\0';
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  listener.size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  std::memcpy(&listener.address, &address, sizeof(address));
  return listener;
}

std::vector<std::vector<std::string>> TableOf(const std::string& file) {
  std::ifstream in(file);
  std::vector<std::vector<std::string>> rows;
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) {
    std::istringstream words(line);
    rows.emplace_back(std::istream_iterator<std::string>(words),
                      std::istream_iterator<std::string>());
  }
  return rows;
}

// The sockets on which `processes` listen, by the kernel's tables.
std::vector<Listener> ListenersOf(const std::vector<pid_t>& processes) {
  std::set<std::string> inodes;
  for (const pid_t pid : processes) {
    std::error_code error;
    for (const auto& fd : std::filesystem::directory_iterator(
             fmt::format("/proc/{}/fd", pid), error)) {
      const std::string target =
          std::filesystem::read_symlink(fd.path(), error).string();
      if (!target.starts_with("socket:[")) continue;
      inodes.insert(target.substr(8, target.size() - 9));
    }
  }
  std::vector<Listener> listeners;
  for (const bool is_ipv6 : {false, true}) {
    for (const auto& row :
         TableOf(is_ipv6 ? "/proc/net/tcp6" : "/proc/net/tcp")) {
      constexpr const char* kListens = "0A";
      if (row.size() > 9 && row[3] == kListens && inodes.contains(row[9])) {
        listeners.push_back(TcpListener(row[1], is_ipv6));
      }
    }
  }
  for (const auto& row : TableOf("/proc/net/unix")) {
    constexpr const char* kListens = "00010000";
    if (row.size() > 7 && row[3] == kListens && inodes.contains(row[6])) {
      listeners.push_back(UnixListener(row[7]));
    }
  }
  return listeners;
}

// A listening peer's answer to one that speaks ZMTP without keys: its greeting,
// and all that it says once it has read ours.
std::string SaidToAStranger(const Listener& listener) {
  using namespace std::string_literals;
  // ZMTP 3.0 (ZeroMQ RFC 23): signature, version, mechanism, filler; then the
  // command READY of a DEALER
  const std::string greeting = "\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL"s +
                               std::string(16, '\0') + std::string(32, '\0');
  const std::string ready =
      "\x04\x29\x05READY\x0bSocket-Type\0\0\0\x06"
      "DEALER\x08Identity\0\0\0\0"s;
  const int fd = ::socket(listener.address.ss_family, SOCK_STREAM, 0);
  std::string said;
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&listener.address),
                listener.size) != 0) {
    said = "cannot be reached";
  } else {
    const std::string words = greeting + ready;
    static_cast<void>(::send(fd, words.data(), words.size(), MSG_NOSIGNAL));
    // until it hangs up; a silent one gives up the handshake before this
    pollfd waiting = {fd, POLLIN, 0};
    while (::poll(&waiting, 1, 20'000) > 0) {
      char bytes[256];
      const ssize_t size = ::read(fd, bytes, sizeof(bytes));
      if (size <= 0) break;
      said.append(bytes, static_cast<size_t>(size));
      if (said.size() > 64) break;
    }
  }
  ::close(fd);
  return said;
}

// Why a stranger gets on with this peer; empty if it does not.
std::string FindOpenness(const Listener& listener) {
  const std::string said = SaidToAStranger(listener);
  constexpr size_t kGreetingBytes = 64;
  constexpr size_t kMechanism = 12;
  if (said.size() > kGreetingBytes) {
    return listener.name + " answers a peer without a key";
  }
  if (said.size() >= kGreetingBytes / 2 &&
      said.compare(kMechanism, 5, "CURVE") != 0) {
    return listener.name + " does not ask for a key";
  }
  return "";
}

std::vector<pid_t> ProcessesOf(pid_t fleet) {
  std::vector<pid_t> processes = {fleet};
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream status(entry.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (line == fmt::format("PPid:\t{}", fleet)) {
        processes.push_back(std::stoi(entry.path().filename().string()));
      }
    }
  }
  return processes;
}

class TrainingKeysTest : public TrainingFixture {
 protected:
  // It never ends by itself.
  Process Start(const std::vector<std::string>& settings) const {
    std::vector<std::string> all = {"learner.limits.max_steps=0",
                                    "evaluation.enabled=false",
                                    "learner.log_interval_s=0.1"};
    all.insert(all.end(), settings.begin(), settings.end());
    return Process({.command = Command(all),
                    .stdout_file = folder_.path() / "out",
                    .stderr_file = folder_.path() / "out"});
  }
  std::filesystem::path LogOf(const std::string& role) const {
    return run_ / "logs" / (role + ".1.log");
  }
};

// Would catch a scanner that finds nothing.
TEST(ScannerTest, FindsAServerWithoutKeys) {
  rpc::ZmqContext context;
  rpc::Server server(context, rpc::Protocol::FromTable("test", 1, "none"));
  server.Bind("tcp://127.0.0.1:*");
  const auto name = fmt::format("ipc://@replicant-scanner-{}", ::getpid());
  server.Bind(name);
  const std::vector<Listener> listeners = ListenersOf({::getpid()});
  EXPECT_EQ(listeners.size(), 2u);
  for (const Listener& listener : listeners) {
    EXPECT_THAT(FindOpenness(listener), HasSubstr("answers a peer without"));
  }
}

TEST_F(TrainingKeysTest, NoSocketOfARunAnswersAStranger) {
  Process fleet = Start(
      {"learner.replication={strategy: parameter_server, replicas: 2, servers: "
       "[auto, \"tcp://127.0.0.1:*\"]}"});
  for (const char* const role : {"actor-0 runs", "worker-1 runs"}) {
    ASSERT_TRUE(AwaitFile(folder_.path() / "out", role)) << Output();
  }
  ASSERT_TRUE(AwaitFile(LogOf("learner-0"), "publishes parameters"));
  const std::vector<pid_t> processes = ProcessesOf(fleet.pid());
  const std::vector<Listener> listeners = ListenersOf(processes);
  // heartbeats, replay, parameters and two servers
  EXPECT_GE(listeners.size(), 5u);
  for (const Listener& listener : listeners) {
    EXPECT_EQ(FindOpenness(listener), "");
  }

  // the key is for its owner, and its secret is nowhere else
  const std::filesystem::path key = run_ / "run.key";
  struct stat status {};
  ASSERT_EQ(::stat(key.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u);
  const std::string secret = rpc::ReadKeyPair(key).secret_key;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(run_)) {
    if (!entry.is_regular_file() || entry.path() == key) continue;
    EXPECT_THAT(ReadFile(entry.path()), Not(HasSubstr(secret))) << entry.path();
  }
  for (const pid_t pid : processes) {
    for (const char* const file : {"cmdline", "environ"}) {
      std::ifstream in(fmt::format("/proc/{}/{}", pid, file));
      const std::string text{std::istreambuf_iterator<char>(in), {}};
      EXPECT_FALSE(text.empty());
      EXPECT_THAT(text, Not(HasSubstr(secret)));
    }
  }
  EXPECT_THAT(Output(), Not(HasSubstr(secret)));

  fleet.Signal(SIGTERM);
  const auto end = fleet.Wait(3min);
  ASSERT_TRUE(end && end->ok()) << Output();
}

TEST_F(TrainingKeysTest, AWrongKeyIsNamedByTheRoleAndTheRun) {
  Process fleet = Start({});
  ASSERT_TRUE(AwaitFile(folder_.path() / "out", "actor-0 runs")) << Output();
  const std::filesystem::path other = folder_.path() / "other.key";
  rpc::WriteKeyPair(other, rpc::GenerateCurveKeyPair());
  const auto actor_with = [&](const std::string& key,
                              const std::filesystem::path& output) {
    return Process(
        {.command = {REPLICANT_ACTOR, "--config", run_ / "config.yaml", "--set",
                     "run.dir=" + run_.string(), "--set",
                     "run.key_file=" + key},
         .stdout_file = output,
         .stderr_file = output});
  };
  {
    const auto output = folder_.path() / "wrong";
    Process actor = actor_with(other, output);
    EXPECT_TRUE(AwaitFile(output, "is its public key right"))
        << ReadFile(output);
    EXPECT_TRUE(AwaitFile(LogOf("learner-0"),
                          "publisher: a client expects a different CURVE key"));
    actor.Signal(SIGKILL);
  }
  {
    const auto output = folder_.path() / "none";
    Process actor = actor_with("\"\"", output);
    EXPECT_TRUE(AwaitFile(output, "CURVE keys")) << ReadFile(output);
    actor.Signal(SIGKILL);
  }
  {
    const auto output = folder_.path() / "absent";
    Process actor = actor_with(folder_.path() / "absent.key", output);
    const auto status = actor.Wait(3min);
    ASSERT_TRUE(status.has_value());
    EXPECT_FALSE(status->ok());
    EXPECT_THAT(ReadFile(output), HasSubstr("absent.key"));
  }
  fleet.Signal(SIGTERM);
  const auto end = fleet.Wait(3min);
  ASSERT_TRUE(end && end->ok()) << Output();
}

// Each run chooses its addresses and its key.
TEST_F(TrainingKeysTest, TwoRunsOfOneFileTrainAtOnce) {
  std::vector<Process> fleets;
  std::vector<std::string> keys;
  for (const char* const name : {"a", "b"}) {
    const auto output = folder_.path() / (std::string("out-") + name);
    fleets.emplace_back(ProcessOptions{
        .command = Command({"run.dir=" + (folder_.path() / name).string(),
                            "replay.bind=tcp://127.0.0.1:*",
                            "learner.parameter_bind=tcp://127.0.0.1:*",
                            "evaluation.enabled=false"}),
        .stdout_file = output,
        .stderr_file = output});
  }
  for (size_t i = 0; i < fleets.size(); ++i) {
    const std::string name = i == 0 ? "a" : "b";
    const auto status = fleets[i].Wait(3min);
    ASSERT_TRUE(status && status->ok())
        << ReadFile(folder_.path() / ("out-" + name));
    keys.push_back(ReadFile(folder_.path() / name / "run.key"));
  }
  EXPECT_NE(keys[0], keys[1]);
}

}  // namespace
}  // namespace replicant
