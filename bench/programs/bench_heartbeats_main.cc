// Measures how many roles one fleet can serve over real connections: the
// fleet's server of heartbeats in this process, encrypted, and clients in
// processes of their own that send a heartbeat a second for each role. Prints
// one line per figure.
//
//   bench_heartbeats --roles 10000 --seconds 20
//
//   connect  until the first heartbeat of every role is in
//   beats    heartbeats a second that arrive, and roles without one in 5 s
//   server   processor time of this process, per second: ZeroMQ, encryption,
//            and the loop that takes heartbeats in and answers them
//   memory   resident memory of this process for each role, and its descriptors
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/file_limit.h"
#include "base/fs.h"
#include "base/process.h"
#include "base/rpc/client.h"
#include "base/rpc/curve.h"
#include "base/rpc/group_key.h"
#include "base/rpc/server.h"
#include "base/rpc/zap.h"
#include "base/thread.h"
#include "bench/programs/process_cost.h"
#include "fleet/protocol/heartbeat.h"
#include "fleet/protocol/heartbeat_monitor.h"

namespace replicant::fleet {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 300s;
constexpr auto kSilence = 5s;
// A context of ZeroMQ has 1,023 sockets; a client has three.
constexpr size_t kClientsPerContext = 300;

struct Options {
  int roles = 10'000;
  int roles_per_process = 2500;
  int seconds = 20;
  // of a process with clients
  std::string endpoint;  // empty: this process is the fleet
  std::string key_file;
  int first = 0;
};

Heartbeat BeatOf(int index) {
  Heartbeat beat;
  beat.id = {"actor", static_cast<uint32_t>(index)};
  beat.state = RoleState::kRunning;
  // as many numbers as an actor sends
  for (const char* const number :
       {"actor/return", "agent_steps", "dropped_records", "env_steps",
        "episode_length", "episodes", "frames", "noise_scale", "policy_step",
        "return"}) {
    beat.numbers[number] = {BeatNumber::Kind::kCounter, 1.0};
  }
  return beat;
}

// Sends heartbeats until the parent dies.
int SendBeats(const Options& options) {
  const rpc::GroupKey key = rpc::GroupKey::FromFile(options.key_file);
  std::vector<std::unique_ptr<rpc::ZmqContext>> contexts;
  std::vector<std::unique_ptr<rpc::Client>> clients;
  for (int i = 0; i < options.roles; ++i) {
    if (clients.size() % kClientsPerContext == 0) {
      contexts.push_back(std::make_unique<rpc::ZmqContext>());
    }
    rpc::ClientOptions client_options;
    client_options.socket.curve = key.client_role();
    client_options.name = fmt::format("actor-{}", options.first + i);
    clients.push_back(std::make_unique<rpc::Client>(
        *contexts.back(), SupervisionProtocol(), client_options));
    clients.back()->Connect(options.endpoint);
    // a handshake has 5 s, which thousands at once would exceed
    if (clients.size() % kClientsPerContext == 0) {
      for (size_t j = clients.size() - kClientsPerContext; j < clients.size();
           ++j) {
        while (!clients[j]->IsResponsive()) clients[j]->Process(100ms);
      }
    }
  }
  while (true) {
    const Clock::TimePoint next = Clock::Real().Now() + 1s;
    std::vector<std::pair<rpc::Client*, rpc::Client::RequestId>> requests;
    for (size_t i = 0; i < clients.size(); ++i) {
      const auto id = clients[i]->Start(
          kBeatKind, BeatOf(options.first + static_cast<int>(i)).Encode(),
          {.timeout = 10s, .is_idempotent = true});
      if (id) requests.emplace_back(clients[i].get(), *id);
    }
    for (const auto& [client, id] : requests) {
      static_cast<void>(client->Wait(id));
    }
    std::this_thread::sleep_until(next);
  }
}

int64_t NumDescriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                       std::filesystem::directory_iterator());
}

// The server as a fleet has it (fleet/run_fleet.cc).
class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options), key_file_(folder_.path() / "run.key") {
    rpc::WriteKeyPair(key_file_, rpc::GenerateCurveKeyPair());
    const rpc::GroupKey key = rpc::GroupKey::FromFile(key_file_);
    guard_ = key.MakeGuard(context_);
    rpc::ServerOptions server_options;
    server_options.socket.curve = key.server_role();
    server_options.max_peers = 65'536;
    server_.emplace(context_, SupervisionProtocol(), server_options);
    monitor_.AttachTo(*server_);
    for (int i = 0; i < options.roles; ++i) monitor_.Expect(BeatOf(i).id, 1);
    endpoint_ = server_->Bind("tcp://127.0.0.1:*");
  }

  void Run() {
    const double before_mb = ResidentMb(::getpid());
    const auto start = Clock::Real().Now();
    for (int first = 0; first < options_.roles;
         first += options_.roles_per_process) {
      senders_.push_back(std::make_unique<Process>(ProcessOptions{
          .command = {std::filesystem::read_symlink("/proc/self/exe"),
                      "--endpoint", endpoint_, "--key_file", key_file_,
                      "--first", std::to_string(first), "--roles",
                      std::to_string(std::min(options_.roles_per_process,
                                              options_.roles - first))}}));
    }
    loop_.emplace("heartbeats",
                  [this](const Thread::StopToken&) { server_->Run(); });
    const auto all = static_cast<size_t>(options_.roles);
    while (monitor_.All().size() < all) {
      if (Clock::Real().Now() - start > kPatience) {
        server_->Stop();
        throw CommError(fmt::format("{} of {} roles have sent a heartbeat",
                                    monitor_.All().size(), all));
      }
      std::this_thread::sleep_for(100ms);
    }
    fmt::print("connect  {:.1f} s for {} roles in {} processes\n",
               ToSeconds(Clock::Real().Now() - start), all, senders_.size());
    Measure(before_mb);
    server_->Stop();
  }

 private:
  void Measure(double before_mb) {
    uint64_t cursor = 0;
    static_cast<void>(monitor_.NewSince(&cursor));
    const auto start = Clock::Real().Now();
    const double processor_s = ProcessorSeconds();
    const uint64_t first = cursor;
    std::this_thread::sleep_for(std::chrono::seconds(options_.seconds));
    const double spent_s = ProcessorSeconds() - processor_s;
    const double seconds = ToSeconds(Clock::Real().Now() - start);
    static_cast<void>(monitor_.NewSince(&cursor));
    const Clock::TimePoint now = Clock::Real().Now();
    const auto silent = std::ranges::count_if(
        monitor_.All(), [now](const HeartbeatMonitor::Entry& entry) {
          return now - entry.time > kSilence;
        });
    fmt::print("beats    {:.0f} a second; {} roles silent for more than 5 s\n",
               static_cast<double>(cursor - first) / seconds, silent);
    fmt::print("server   {:.0f} ms of a processor a second\n",
               1e3 * spent_s / seconds);
    fmt::print("memory   {:.1f} kB a role; {} descriptors\n",
               1024.0 * (ResidentMb(::getpid()) - before_mb) / options_.roles,
               NumDescriptors());
  }

  const Options options_;
  const TemporaryFolder folder_;
  const std::filesystem::path key_file_;
  HeartbeatMonitor monitor_;
  rpc::ZmqContext context_;
  std::unique_ptr<rpc::ZapHandler> guard_;
  std::optional<rpc::Server> server_;
  std::string endpoint_;
  std::vector<std::unique_ptr<Process>> senders_;
  std::optional<Thread> loop_;
};

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("one fleet's heartbeats over real connections");
  app.add_option("--roles", options.roles)->check(CLI::Range(1, 65'000));
  app.add_option("--roles_per_process", options.roles_per_process)
      ->check(CLI::Range(1, 65'000));
  app.add_option("--seconds", options.seconds)->check(CLI::Range(1, 10'000));
  app.add_option("--endpoint", options.endpoint)->group("");
  app.add_option("--key_file", options.key_file)->group("");
  app.add_option("--first", options.first)->group("");
  CLI11_PARSE(app, argc, argv);
  spdlog::set_level(spdlog::level::err);
  RaiseFileLimit();
  if (!options.endpoint.empty()) return SendBeats(options);
  CheckFileLimit("--roles", options.roles + 100);
  Bench(options).Run();
  return 0;
}

}  // namespace
}  // namespace replicant::fleet

int main(int argc, char** argv) {
  try {
    return replicant::fleet::Main(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_heartbeats: %s\n", e.what());
    return 1;
  }
}
