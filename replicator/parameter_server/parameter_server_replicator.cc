#include "replicator/parameter_server/parameter_server_replicator.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <deque>
#include <exception>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/disk_queue.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/mutex.h"
#include "base/rpc/group_key.h"
#include "base/rpc/server.h"
#include "base/rpc/wire.h"
#include "base/thread.h"
#include "engine/kernels/backend.h"
#include "engine/runtime/checkpoint.h"
#include "replicator/calls/graph_replica.h"
#include "replicator/parameter_server/parameter_shard.h"
#include "replicator/steps/step_values.h"
#include "replicator/unknown_name.h"

namespace replicant::replicator {
namespace {

using namespace std::chrono_literals;

// Time for which a server stays once every worker was told of the end, and
// maximum time after the end: a worker may be in a long step.
constexpr auto kFarewell = 3s;
constexpr auto kLongestFarewell = 120s;
constexpr auto kTickInterval = 500ms;
constexpr size_t kRequestsOfWorker = 4;

// The requests of workers and the ends of their connections, passed in their
// order from the network thread to the computing one.
class RequestQueue {
 public:
  struct Request {
    ServerMessage kind;
    rpc::Message payload;
    rpc::Responder responder;
  };
  struct Event {
    uint32_t worker;
    // none: the worker's connection has broken
    std::optional<Request> request;
  };

  // At most `max_requests` wait, since each may hold all gradients.
  RequestQueue(const std::string& endpoint, size_t max_requests,
               const rpc::GroupKey& key)
      : max_requests_(max_requests),
        guard_(key.MakeGuard(context_)),
        server_(context_, ParameterServerProtocol(), ServerOptions(key)) {
    for (const ServerMessage kind :
         {ServerMessage::kJoin, ServerMessage::kPull, ServerMessage::kPush,
          ServerMessage::kAssign, ServerMessage::kEnd}) {
      server_.Handle(
          static_cast<uint16_t>(kind),
          [this, kind](rpc::Request& request, const rpc::Responder& responder) {
            const uint32_t worker =
                rpc::DecodeFirstPart<ServerRequest>(request.payload).worker;
            peer_of_worker_[worker] = request.peer_id;
            // answers of waiting requests come later
            responder.SetDeadline(Clock::TimePoint::max());
            const MutexLock lock(mutex_);
            if (events_.size() >= max_requests_) {
              responder.ReplyError(
                  rpc::ErrorCode::kBusy,
                  fmt::format("{} requests are waiting", events_.size()));
              return;
            }
            events_.push_back(
                {worker, Request{kind, std::move(request.payload), responder}});
            changed_.NotifyAll();
          });
    }
    // a worker that is in a step says nothing; its connection tells whether it
    // lives
    server_.OnTick([this] {
      // a probe may find that it is lost
      const auto peers = peer_of_worker_;
      for (const auto& [worker, peer] : peers) server_.Probe(peer);
    });
    server_.OnPeerLost([this](const rpc::Peer& peer) {
      // not of a process that another one has replaced
      const auto found = std::ranges::find(
          peer_of_worker_, peer.id,
          [](const auto& worker_and_peer) { return worker_and_peer.second; });
      if (found == peer_of_worker_.end()) return;
      const MutexLock lock(mutex_);
      events_.push_back({found->first, std::nullopt});
      peer_of_worker_.erase(found);
      changed_.NotifyAll();
    });
    server_.Bind(endpoint);
    loop_.emplace("parameters",
                  [this](const Thread::StopToken&) { server_.Run(); });
  }
  ~RequestQueue() { server_.Stop(); }

  std::optional<Event> Next(Clock::TimePoint deadline) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    while (events_.empty() && Clock::Real().Now() < deadline) {
      changed_.WaitUntil(mutex_, deadline);
    }
    if (events_.empty()) return std::nullopt;
    Event event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

  void Reply(const rpc::Responder& responder, rpc::Message message) {
    // post() copies its argument
    auto shared = std::make_shared<rpc::Message>(std::move(message));
    server_.Post([responder, shared] {
      responder.Reply(std::move(*shared), /*has_crc=*/true);
    });
  }
  void ReplyError(const rpc::Responder& responder, rpc::ErrorCode code,
                  const std::string& text) {
    server_.Post([=] { responder.ReplyError(code, text); });
  }

 private:
  static rpc::ServerOptions ServerOptions(const rpc::GroupKey& key) {
    rpc::ServerOptions options;
    options.socket.curve = key.server_role();
    options.tick_interval = kTickInterval;
    // a long step is not a silent peer
    options.peer_timeout = std::chrono::hours(1);
    return options;
  }

  const size_t max_requests_;
  rpc::ZmqContext context_;
  const std::unique_ptr<rpc::ZapHandler> guard_;
  rpc::Server server_;
  // the newest of each, of the server's thread
  std::map<uint32_t, uint64_t> peer_of_worker_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Event> events_ GUARDED_BY(mutex_);
  std::optional<Thread> loop_;  // last: it uses all of the above
};

// The version-N folders of a server's checkpoints.
class ShardCheckpoints {
 public:
  explicit ShardCheckpoints(std::filesystem::path folder)
      : folder_(std::move(folder)) {}

  bool is_kept() const { return !folder_.empty(); }

  // Removes what a killed server has left unfinished, too.
  void RestoreNewest(ParameterShard* shard) const {
    RemoveStaleTemporaries(folder_);
    const auto versions = Versions();
    if (versions.empty()) return;
    shard->Restore(PathOf(*versions.rbegin()));
    spdlog::info("continues from version {}", shard->version());
  }

  // Throws IoError.
  void Save(const runtime::HostVariables& variables,
            const runtime::CheckpointInfo& info) const {
    const std::set<int64_t> older = Versions();
    if (older.contains(info.step)) return;
    MakeFolders(folder_);
    runtime::SaveCheckpoint(PathOf(info.step), variables, info);
    for (const int64_t version : older) {
      std::error_code error;
      std::filesystem::remove_all(PathOf(version), error);
      if (error) {
        spdlog::warn("cannot remove {}: {}", PathOf(version).string(),
                     error.message());
      }
    }
  }

 private:
  static constexpr std::string_view kPrefix = "version-";

  std::filesystem::path PathOf(int64_t version) const {
    return folder_ / fmt::format("{}{}", kPrefix, version);
  }
  std::set<int64_t> Versions() const {
    std::set<int64_t> versions;
    std::error_code error;
    if (!is_kept() || !std::filesystem::exists(folder_, error)) return versions;
    for (const auto& entry :
         std::filesystem::directory_iterator(folder_, error)) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with(kPrefix)) continue;
      int64_t version = 0;
      const char* end = name.data() + name.size();
      const auto [stop, problem] =
          std::from_chars(name.data() + kPrefix.size(), end, version);
      if (problem == std::errc() && stop == end) versions.insert(version);
    }
    if (error) throw IoError::FromErrno("list", folder_, error.value());
    return versions;
  }

  const std::filesystem::path folder_;
};

// Describes a batch without drawing one.
class SpecInput : public Input {
 public:
  SpecInput(const Replicator* owner, const ReplicationConfig& config,
            const InputFn& input_fn, InputMode mode)
      : owner_(owner) {
    const int replicas = config.replicas_of_group();
    InputContext context{.num_replicas = replicas,
                         .num_groups = config.num_groups()};
    if (mode == InputMode::kPerReplica) context.num_pipelines = replicas;
    if (mode == InputMode::kPerWorker) {
      context.num_pipelines = config.processes_per_group;
    }
    pipeline_ = input_fn(context);
    specs_ = pipeline_->specs();
    const int num_fed = replicas / context.num_pipelines;
    if (num_fed == 1) return;
    for (InputSpec& spec : specs_) {
      spec.shape = spec.shape.WithLeading(spec.shape[0] / num_fed);
    }
  }

  const Replicator* owner() const { return owner_; }
  const std::vector<InputSpec>& specs() const { return specs_; }

 private:
  const Replicator* owner_;
  // the caller may ask the server for its state
  std::unique_ptr<InputPipeline> pipeline_;
  std::vector<InputSpec> specs_;
};

class ParameterServer : public Replicator {
 public:
  ParameterServer(const ReplicationConfig& config, uint64_t seed, int server,
                  const std::filesystem::path& folder,
                  const kernels::BackendFactory& make_backend)
      : config_(config),
        seed_(seed),
        server_(server),
        checkpoints_(folder),
        backend_(make_backend(config.backend, {.num_threads = config.threads})),
        variables_(*backend_, seed) {
    if (!backend_->is_host_memory()) {
      throw ConfigError(
          fmt::format("replication: a parameter server computes on cpu, not {}",
                      config.backend));
    }
  }
  ~ParameterServer() override {
    if (shard_ == nullptr) return;
    const ParameterShard::Stats& stats = shard_->stats();
    spdlog::info("{} pushes, the stalest {} of {} versions behind; {} lost",
                 stats.pushes, stats.largest_staleness, config_.staleness,
                 stats.lost_pushes);
  }

  int num_replicas() const override { return config_.replicas; }
  // after the workers
  int process_id() const override { return config_.num_workers() + server_; }
  // Does not belong to a worker: serves the seed's first values and what is
  // assigned.
  runtime::VariableStore& variables() override { return variables_; }
  // Saves, unless the training is over: the next server goes on from there.
  void Stop() override;

  // Serves requests until the deadline.
  NextResult Serve(Clock::TimePoint deadline);

 private:
  std::unique_ptr<Input> DoMakeInput(const InputFn& input_fn,
                                     InputMode mode) override {
    return std::make_unique<SpecInput>(this, config_, input_fn, mode);
  }
  std::unique_ptr<Step> DoBuild(
      Input& input, const std::vector<StepFn>& phases,
      const runtime::CompileOptions& options) override;
  void Start();
  void Take(RequestQueue::Request request);
  void Save();

  const ReplicationConfig config_;
  const uint64_t seed_;
  const int server_;
  const ShardCheckpoints checkpoints_;
  std::unique_ptr<kernels::Backend> backend_;
  runtime::VariableStore variables_;
  std::vector<std::unique_ptr<StepSplit>> splits_;
  std::unique_ptr<ParameterShard> shard_;
  std::unique_ptr<RequestQueue> requests_;
  Clock::TimePoint next_tick_;
  Clock::TimePoint next_save_;
  std::optional<Clock::TimePoint> farewell_, longest_farewell_;
  std::future<void> saving_;
  DiskQueue disk_;  // last: it finishes its work first
};

class ServerStep : public Step {
 public:
  explicit ServerStep(ParameterServer* server) : server_(*server) {}

  NextResult Run(Clock::TimePoint deadline) override {
    return server_.Serve(deadline);
  }
  TensorView value(std::string_view name) const override {
    ThrowUnknownName("a parameter server's step has no value", name, {});
  }
  const runtime::PlanReport& report() const override { return report_; }

 private:
  ParameterServer& server_;
  const runtime::PlanReport report_ = {};
};

std::unique_ptr<Step> ParameterServer::DoBuild(
    Input& input, const std::vector<StepFn>& phases,
    const runtime::CompileOptions& /*options*/) {
  const auto* own_input = dynamic_cast<SpecInput*>(&input);
  REPLICANT_CHECK(own_input != nullptr && own_input->owner() == this,
                  "Build: the input is another replicator's");
  REPLICANT_CHECK(shard_ == nullptr, "Build: it serves already");
  for (const StepFn& step_fn : phases) {
    Graph graph(seed_);
    GraphReplica replica(graph,
                         {.id = 0, .count = config_.replicas_of_group()});
    const StepOutputs outputs =
        step_fn(replica, AddInputs(graph, own_input->specs()));
    splits_.push_back(std::make_unique<StepSplit>(SplitStep(graph, outputs)));
  }
  return std::make_unique<ServerStep>(this);
}

void ParameterServer::Start() {
  std::vector<const StepSplit*> splits;
  splits.reserve(splits_.size());
  for (const auto& split : splits_) splits.push_back(split.get());
  const Sharding sharding(splits, static_cast<int>(config_.servers.size()));
  shard_ = std::make_unique<ParameterShard>(
      ParameterShard::Options{.server = server_,
                              .num_workers = config_.num_groups(),
                              .staleness = config_.staleness,
                              .patience = FromSeconds(config_.timeout_s),
                              .seed = seed_},
      splits, sharding, backend_.get());
  checkpoints_.RestoreNewest(shard_.get());
  const std::string& endpoint = config_.servers[static_cast<size_t>(server_)];
  // a worker has one request under way, and another one if it begins anew
  requests_ = std::make_unique<RequestQueue>(
      endpoint, kRequestsOfWorker * static_cast<size_t>(config_.num_groups()),
      rpc::GroupKey::FromFile(config_.key_file));
  spdlog::info("serves {} variables at {}",
               HeldVariables(sharding, server_).size(), endpoint);
  next_save_ =
      Clock::Real().Now() + FromSeconds(config_.server_checkpoint_interval_s);
}

NextResult ParameterServer::Serve(Clock::TimePoint deadline) {
  if (shard_ == nullptr) Start();
  while (true) {
    if (auto event = requests_->Next(deadline)) {
      if (event->request) {
        Take(std::move(*event->request));
      } else {
        shard_->Lose(event->worker);
      }
    }
    const Clock::TimePoint now = Clock::Real().Now();
    if (now >= next_tick_) {
      shard_->Tick(now);
      next_tick_ = now + kTickInterval;
    }
    if (now >= next_save_) Save();
    if (shard_->is_over()) {
      if (!longest_farewell_) longest_farewell_ = now + kLongestFarewell;
      // the answers are still on their way
      if (!farewell_ && shard_->IsEveryoneTold()) farewell_ = now + kFarewell;
      if (now >= farewell_.value_or(*longest_farewell_)) {
        return NextResult::kEnd;
      }
    }
    if (now >= deadline) return NextResult::kTimeout;
  }
}

void ParameterServer::Take(RequestQueue::Request request) {
  const rpc::Responder responder = request.responder;
  const auto fail = [&](rpc::ErrorCode code, const std::exception& e) {
    spdlog::warn("refuses a request: {}", e.what());
    requests_->ReplyError(responder, code, e.what());
  };
  try {
    shard_->Handle(
        request.kind, std::move(request.payload),
        [this, responder](rpc::Message message) {
          requests_->Reply(responder, std::move(message));
        },
        Clock::Real().Now());
  } catch (const rpc::MalformedMessage& e) {
    fail(rpc::ErrorCode::kMalformed, e);
  } catch (const InvalidArgument& e) {
    fail(rpc::ErrorCode::kInvalidArgument, e);
  }
}

void ParameterServer::Stop() {
  if (shard_ == nullptr || shard_->is_over()) return;
  if (saving_.valid()) saving_.wait();
  Save();
}

void ParameterServer::Save() {
  next_save_ =
      Clock::Real().Now() + FromSeconds(config_.server_checkpoint_interval_s);
  if (!checkpoints_.is_kept() || shard_->version() == 0) return;
  // a disk that is slower than the interval delays the next checkpoint
  if (saving_.valid() && !IsDone(saving_)) return;
  const auto variables =
      std::make_shared<const runtime::HostVariables>(shard_->CopyVariables());
  saving_ = disk_.Post(
      [checkpoints = checkpoints_, variables, info = shard_->Info()] {
        try {
          checkpoints.Save(*variables, info);
        } catch (const std::exception& e) {
          spdlog::error("no checkpoint of version {}: {}", info.step, e.what());
        }
      });
}

}  // namespace

std::unique_ptr<Replicator> MakeParameterServer(
    const ReplicationConfig& config, uint64_t seed, int server,
    const std::filesystem::path& folder,
    const kernels::BackendFactory& make_backend) {
  if (server < 0 || static_cast<size_t>(server) >= config.servers.size()) {
    throw ConfigError(
        fmt::format("replication.servers: no server {}; allowed: 0 to {}",
                    server, config.servers.size() - 1));
  }
  return std::make_unique<ParameterServer>(config, seed, server, folder,
                                           make_backend);
}

}  // namespace replicant::replicator
