// Measures the processor time that a fleet needs for many actors, without
// processes and sockets: hosts, heartbeats, the supervisor and the watch of the
// run as in fleet/run_fleet.cc, on a clock that the program moves. Prints one
// line per figure.
//
//   bench_fleet --actors 10000 --actors_per_host 16 --seconds 20
//
//   join       until every host has joined and every actor has started and runs
//   heartbeat  of all actors, one a second each: decode, take in, answer
//   report     of all hosts, four a second each: decode, take in, answer
//   step       of the supervisor, twenty a second
//   watch      status, progress line as on a terminal, curves, status.json
//   disk       the thread that writes files
//   logs       the thread that reads the logs of all actors
//
// Each part is the processor time for one second of the run; their sum is the
// share of a processor that the fleet takes, except for ZeroMQ.
#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <ctime>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/fs.h"
#include "base/rpc/fields.h"
#include "fleet/backends/hosts.h"
#include "fleet/host_pool.h"
#include "fleet/protocol/agent_messages.h"
#include "fleet/protocol/heartbeat_monitor.h"
#include "fleet/run_folder.h"
#include "fleet/run_watch.h"
#include "fleet/status.h"
#include "fleet/supervisor.h"

namespace replicant::fleet {
namespace {

using std::chrono::milliseconds;

constexpr auto kStep = milliseconds(50);
constexpr int kStepsPerReport = 5;
constexpr int kStepsPerSecond = 20;
constexpr auto kLogsTime = std::chrono::seconds(5);

struct Options {
  int actors = 10'000;
  int actors_per_host = 16;
  int seconds = 20;
};

// Of this thread.
double ProcessorSeconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) +
         1e-9 * static_cast<double>(time.tv_nsec);
}

// Processor seconds of the threads of this process with a name.
double SecondsOfThreads(std::string_view name) {
  double seconds = 0.0;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "stat");
    std::string text;
    std::getline(file, text);
    const size_t begin = text.find('(') + 1;
    const size_t end = text.rfind(')');
    if (text.substr(begin, end - begin) != name) continue;
    // state is the first field behind the name, user time the 12th
    std::istringstream rest(text.substr(end + 1));
    std::string field;
    for (int i = 0; i < 11; ++i) rest >> field;
    double user = 0.0;
    double system = 0.0;
    rest >> user >> system;
    seconds += (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  }
  return seconds;
}

// The entries of a run's progress line.
std::vector<ProgressField> Fields() {
  using Kind = ProgressField::Kind;
  std::vector<ProgressField> fields;
  for (const char* const number : {"return", "noise_scale", "policy_step"}) {
    fields.push_back({.kind = Kind::kValue,
                      .label = number,
                      .role = "actor",
                      .number = number});
  }
  for (const char* const number : {"frames", "env_steps"}) {
    fields.push_back({.kind = Kind::kRate,
                      .label = number,
                      .role = "actor",
                      .number = number});
  }
  fields.push_back({.kind = Kind::kLimit});
  return fields;
}

std::vector<CurveField> Curves() {
  using Kind = CurveField::Kind;
  return {{Kind::kMean, "actors/return", "actor", "return"},
          {Kind::kSum, "actors/episodes", "actor", "episodes"},
          {Kind::kRate, "actors/frames_per_s", "actor", "frames"},
          {Kind::kRateOfEach, "actors/frames_per_s", "actor", "frames"}};
}

// A host with the processes that it was told to start.
struct Host {
  uint64_t agent = 0;
  AgentReport report;
};

class Simulation {
 public:
  explicit Simulation(const Options& options)
      : options_(options),
        folder_(RunFolder::Create({.dir = (parent_.path() / "run").string()},
                                  "{}\n")),
        pool_({.files = {}, .clock = &clock_}),
        backend_(&pool_),
        supervisor_({.config = config_, .heartbeat_endpoint = "tcp://x"},
                    Specs(options.actors), &folder_, &backend_, &monitor_,
                    &clock_),
        watch_(
            {.progress = {.fd = null_fd_, .plain_interval = milliseconds(250)},
             .fields = Fields(),
             .curve_axis = {"actor", "policy_step", "frames"},
             .curves = Curves(),
             .metrics_address = {}},
            &folder_, &status_, &clock_) {}
  ~Simulation() { ::close(null_fd_); }
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  void Join() {
    const int num_hosts = (options_.actors + options_.actors_per_host - 1) /
                          options_.actors_per_host;
    for (int i = 0; i < num_hosts; ++i) {
      Host host{.agent = static_cast<uint64_t>(i) + 1};
      const JoinRequest join{
          .agent = host.agent,
          .host = fmt::format("host{}", i),
          .slots = static_cast<uint32_t>(options_.actors_per_host)};
      Measure("join", [&] {
        static_cast<void>(pool_.Join(JoinRequest::Decode(join.Encode())));
      });
      host.report.agent = host.agent;
      hosts_.push_back(std::move(host));
    }
    int num_seconds = 0;
    while (!AllRun()) {
      Second("join");
      if (++num_seconds > 60) throw IoError("the actors do not start");
    }
    fmt::print(
        "join       {:8.2f} s of a processor, {} s of the run; {} actors on {} "
        "hosts\n",
        times_["join"], num_seconds, options_.actors, hosts_.size());
    times_.clear();
  }

  void Run() {
    const double disk_s = SecondsOfThreads("disk");
    for (int i = 0; i < options_.seconds; ++i) Second("");
    folder_.AwaitDisk(std::chrono::seconds(60));
    times_["disk"] = SecondsOfThreads("disk") - disk_s;
    // this thread reads by the real clock
    const double logs_s = SecondsOfThreads("log-follower");
    std::this_thread::sleep_for(kLogsTime);
    times_["logs"] = (SecondsOfThreads("log-follower") - logs_s) *
                     options_.seconds / ToSeconds(kLogsTime);
  }

  void Print() const {
    double sum = 0.0;
    for (const auto& [part, seconds] : times_) {
      const double share = seconds / options_.seconds;
      fmt::print("{:10} {:8.2f} ms a second\n", part, 1e3 * share);
      sum += share;
    }
    fmt::print("all        {:8.2f} ms a second\n", 1e3 * sum);
  }

 private:
  static std::vector<RoleSpec> Specs(int count) {
    std::vector<RoleSpec> specs;
    for (int i = 0; i < count; ++i) {
      RoleSpec spec{.id = {"actor", static_cast<uint32_t>(i)},
                    .command = {"actor", "--index", std::to_string(i)}};
      spec.is_remote = spec.is_elastic = true;
      spec.data_flow = DataFlow::kProduces;
      specs.push_back(std::move(spec));
    }
    return specs;
  }

  template <typename Call>
  void Measure(const std::string& part, const Call& call) {
    const double begin = ProcessorSeconds();
    call();
    times_[part] += ProcessorSeconds() - begin;
  }

  bool AllRun() const {
    for (const Supervisor::RoleView& role : supervisor_.Roles()) {
      if (role.phase != RolePhase::kReady) return false;
    }
    return true;
  }

  // A second of the run. `part` takes all of its time; empty: each its own.
  void Second(const std::string& part) {
    const auto name = [&part](const char* own) {
      return part.empty() ? std::string(own) : part;
    };
    num_seconds_ += 1.0;
    for (int step = 0; step < kStepsPerSecond; ++step) {
      clock_.Advance(kStep);
      Measure(name("step"), [this] {
        pool_.Update(/*have_all_a_place=*/false);
        supervisor_.Step();
      });
      Measure(name("watch"), [this] {
        watch_.Update({.supervisor = &supervisor_,
                       .monitor = &monitor_,
                       .pool = &pool_,
                       .endpoint = "tcp://x"});
      });
      if (step % kStepsPerReport == 0) Report(name("report"));
      // a twentieth of the actors
      for (size_t i = static_cast<size_t>(step); i < running_.size();
           i += kStepsPerSecond) {
        Beat(running_[i], name("heartbeat"));
      }
    }
  }

  void Beat(const RoleId& id, const std::string& part) {
    Heartbeat beat;
    beat.id = id;
    beat.state = RoleState::kRunning;
    // as many numbers as an actor sends
    for (const char* const number :
         {"actor/return", "agent_steps", "dropped_records", "env_steps",
          "episode_length", "episodes", "frames", "noise_scale", "policy_step",
          "return"}) {
      beat.numbers[number] = {BeatNumber::Kind::kCounter, num_seconds_};
    }
    const rpc::Message message = beat.Encode();
    Measure(part, [&] {
      static_cast<void>(
          rpc::EncodeMessage(monitor_.Receive(Heartbeat::Decode(message))));
    });
  }

  void Report(const std::string& part) {
    for (Host& host : hosts_) {
      const rpc::Message message = rpc::EncodeMessage(host.report);
      ReportReply reply;
      Measure(part, [&] {
        reply = pool_.Report(rpc::DecodeMessage<AgentReport>(message));
        static_cast<void>(rpc::EncodeMessage(reply));
      });
      for (const AgentOrder& order : reply.orders) {
        if (order.number <= host.report.last_order) continue;
        host.report.last_order = order.number;
        host.report.processes.push_back(
            {.id = order.id, .incarnation = order.incarnation});
        running_.push_back(order.id);
      }
    }
  }

  const Options options_;
  const TemporaryFolder parent_;
  const FleetConfig config_;
  FakeClock clock_;
  RunFolder folder_;
  HeartbeatMonitor monitor_{clock_};
  HostPool pool_;
  HostsBackend backend_;
  Supervisor supervisor_;
  FleetStatus status_;
  const int null_fd_ = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  RunWatch watch_;
  std::vector<Host> hosts_;
  std::vector<RoleId> running_;
  double num_seconds_ = 0.0;
  std::map<std::string, double> times_;  // processor seconds by part
};

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("processor time of a fleet with many actors");
  app.add_option("--actors", options.actors)->check(CLI::Range(1, 100'000));
  app.add_option("--actors_per_host", options.actors_per_host)
      ->check(CLI::Range(1, 10'000));
  app.add_option("--seconds", options.seconds)->check(CLI::Range(1, 10'000));
  CLI11_PARSE(app, argc, argv);
  spdlog::set_level(spdlog::level::warn);
  Simulation simulation(options);
  simulation.Join();
  simulation.Run();
  simulation.Print();
  return 0;
}

}  // namespace
}  // namespace replicant::fleet

int main(int argc, char** argv) {
  try {
    return replicant::fleet::Main(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_fleet: %s\n", e.what());
    return 1;
  }
}
