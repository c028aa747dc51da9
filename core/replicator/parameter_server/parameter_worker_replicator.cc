// The workers of
// core/replicator/parameter_server/parameter_server_replicator.h.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/replicator/graph/step_split.h"
#include "core/replicator/parameter_server/parameter_protocol.h"
#include "core/replicator/parameter_server/parameter_server_replicator.h"
#include "core/replicator/parameter_server/parameter_shard.h"
#include "core/replicator/strategies/synchronous_replicator.h"
#include "core/rpc/client.h"
#include "core/rpc/group_key.h"

namespace replicant::replicator {
namespace {

using namespace std::chrono_literals;
using Status = ServerReply::Status;

// Time during which the worker tries to tell the servers of the end.
constexpr auto kFarewell = 2s;
// A request without an answer is repeated after this time.
constexpr auto kAttempt = 5s;
// Interval of a wait for one server at which the others are checked.
constexpr auto kLongWait = 1s;

// A worker's connection to one server.
class ServerLink {
 public:
  struct Answer {
    Status status = Status::kOk;
    int64_t version = 0;
    rpc::Message tensors;
  };

  ServerLink(rpc::ZmqContext& context, int server, std::string endpoint,
             uint32_t worker, std::string description, Clock::Duration timeout,
             const rpc::GroupKey& key)
      : server_(server),
        endpoint_(std::move(endpoint)),
        worker_(worker),
        run_(rpc::RandomId()),
        description_(std::move(description)),
        timeout_(timeout),
        client_(context, ParameterServerProtocol(),
                {.socket = {.curve = key.client_role()},
                 .name = fmt::format("worker-{}", worker)}) {
    client_.Connect(endpoint_);
  }

  // Of the first worker. Returns the values of `held`, for a server that has
  // lost them.
  std::function<std::vector<TensorView>()> values_to_assign;
  // Of the first worker. Called every kLongWait of a wait for this server.
  std::function<void()> on_long_wait;

  // The variables of the server, and those that a pull for each step needs.
  std::vector<std::string> held;
  std::vector<std::vector<std::string>> pulled;
  // The values that a push of each step carries.
  std::vector<std::vector<size_t>> pushed;
  std::vector<std::vector<std::string>> pushed_variables;

  // Sends a request; Finish() waits for the answer. `what` names the request in
  // errors.
  void Start(ServerMessage kind, uint64_t sequence, uint32_t step,
             const std::vector<TensorView>& tensors, std::string what) {
    kind_ = kind;
    what_ = std::move(what);
    payload_ = rpc::MakeMessage(ServerRequest{
        .worker = worker_, .run = run_, .sequence = sequence, .step = step}
                                    .Encode());
    AddTensors(tensors, &payload_);
    Send(timeout_);
  }

  // Joins first if the server asks for it. Throws CommError, naming the server,
  // if it does not answer or refuses.
  Answer Finish() {
    Answer answer = Await();
    if (answer.status == Status::kJoinFirst) {
      JoinAgain();
      Send(timeout_);
      answer = Await();
    }
    return answer;
  }

  // Tells the server that the training is over, if it still answers.
  void End() {
    payload_ = rpc::MakeMessage(
        ServerRequest{.worker = worker_, .run = run_}.Encode());
    kind_ = ServerMessage::kEnd;
    const rpc::CallReply reply =
        client_.Call(static_cast<uint16_t>(kind_), rpc::Share(payload_),
                     {.timeout = kFarewell, .is_idempotent = true});
    if (reply.result != rpc::CallResult::kOk) {
      spdlog::warn("{} was not told of the end", Name());
    }
  }

  // Identifies this run of the worker; a worker that restarts draws a new name.
  // Returns the server's version.
  int64_t Join() {
    rpc::Message payload = rpc::MakeMessage(
        ServerRequest{.worker = worker_, .run = run_}.Encode());
    payload.push_back(rpc::Frame::Copy(description_));
    const int64_t version =
        AskBetween(ServerMessage::kJoin, std::move(payload), "join").version;
    joined_session_ = client_.session_id();
    return version;
  }

  // Joins again if the server was restarted since. Does not wait for a server
  // that is away.
  void CheckServer() {
    client_.Process(Clock::Duration(0));
    const uint64_t session = client_.session_id();
    if (joined_session_ != 0 && session != 0 && session != joined_session_) {
      JoinAgain();
    }
  }

 private:
  std::string Name() const {
    return fmt::format("parameter server {} at {}", server_, endpoint_);
  }

  // A server that was restarted without a checkpoint is of version 0 and makes
  // all workers wait until it has variables again: those of the first worker.
  void JoinAgain() {
    if (Join() > 0 || !values_to_assign) return;
    spdlog::warn("{} has lost its variables and gets those of worker {}",
                 Name(), worker_);
    rpc::Message payload = rpc::MakeMessage(
        ServerRequest{.worker = worker_, .run = run_}.Encode());
    AddTensors(values_to_assign(), &payload);
    AskBetween(ServerMessage::kAssign, std::move(payload), "take variables");
  }

  // Sends a request while another one may be under way, and waits for its
  // answer.
  Answer AskBetween(ServerMessage kind, rpc::Message payload,
                    const std::string& what) {
    std::swap(payload, payload_);
    const ServerMessage other_kind = std::exchange(kind_, kind);
    const std::string other_what = std::exchange(what_, what);
    const auto other_request = request_;
    Send(timeout_);
    Answer answer = Await();
    std::swap(payload, payload_);
    kind_ = other_kind;
    what_ = other_what;
    request_ = other_request;
    return answer;
  }

  void Send(Clock::Duration timeout) {
    request_ = client_.Start(static_cast<uint16_t>(kind_), rpc::Share(payload_),
                             {.timeout = timeout,
                              .is_idempotent = true,
                              .has_crc = true,
                              .attempt_timeout = kAttempt});
    REPLICANT_CHECK(request_.has_value(), "too many requests");
  }

  Answer Await() {
    // another server may be the one that all wait for
    for (auto next = Clock::Real().Now() + kLongWait;
         on_long_wait && !client_.IsDone(*request_);) {
      client_.Process(std::max(next - Clock::Real().Now(), Clock::Duration(0)));
      if (Clock::Real().Now() < next) continue;
      on_long_wait();
      next = Clock::Real().Now() + kLongWait;
    }
    rpc::CallReply reply = client_.Wait(*request_);
    switch (reply.result) {
      case rpc::CallResult::kOk:
        break;
      case rpc::CallResult::kError:
        throw CommError(fmt::format("{} refuses to {}: {}", Name(), what_,
                                    reply.error_text));
      default:
        throw CommError(fmt::format(
            "worker {}: {} has not answered for {:.0f} s, asked to {}; hint: "
            "`learner --role server --index {}` serves there",
            worker_, Name(), ToSeconds(timeout_), what_, server_));
    }
    const ServerReply header = ServerReply::Decode(reply.payload);
    reply.payload.erase(reply.payload.begin());
    return {header.status, header.version, std::move(reply.payload)};
  }

  const int server_;
  const std::string endpoint_;
  const uint32_t worker_;
  const uint64_t run_;
  const std::string description_;
  const Clock::Duration timeout_;
  rpc::Client client_;
  // the request under way
  ServerMessage kind_ = ServerMessage::kJoin;
  std::string what_;
  rpc::Message payload_;
  std::optional<rpc::Client::RequestId> request_;
  uint64_t joined_session_ = 0;
};

class ParameterWorker;

// Passes batches on, and has the variables pulled when there is one: no worker
// may wait for a worker that waits for its input.
class PullingPipeline : public InputPipeline {
 public:
  PullingPipeline(ParameterWorker* worker,
                  std::unique_ptr<InputPipeline> pipeline)
      : worker_(*worker), pipeline_(std::move(pipeline)) {}

  const std::vector<InputSpec>& specs() const override {
    return pipeline_->specs();
  }
  NextResult Next(Clock::TimePoint deadline,
                  std::span<const MutableTensorView> batch) override;

 private:
  ParameterWorker& worker_;
  std::unique_ptr<InputPipeline> pipeline_;
};

class ParameterWorker : public Replicator {
 public:
  ParameterWorker(const ReplicationConfig& config, uint64_t seed, int worker,
                  const kernels::BackendFactory& make_backend)
      : config_(config),
        worker_(worker),
        inner_(MakeSynchronousReplicator(InnerConfig(config), seed,
                                         make_backend)) {
    if (!inner_->variables().backend().is_host_memory()) {
      throw ConfigError(
          fmt::format("replication: a worker of parameter servers sends "
                      "variables from host "
                      "memory, which backend {} does not use; use cpu",
                      config.backend));
    }
  }

  int num_replicas() const override { return config_.replicas; }
  int process_id() const override { return worker_; }
  std::unique_ptr<Step> Build(Input& input, const StepFn& step_fn,
                              const runtime::CompileOptions& options) override;
  runtime::VariableStore& variables() override {
    if (worker_ == 0 && is_started_ && !is_over_) PullAll();
    return inner_->variables();
  }
  void Stop() override;

  // --- for its steps and input ---

  // One step; `index` is its number in the order of building.
  NextResult Run(Step& inner, uint32_t index, Clock::TimePoint deadline);
  // A pipeline of the current step has delivered its part of a batch. Returns
  // whether the step goes on.
  bool TakeBatch();
  int worker() const { return worker_; }
  int64_t num_new_steps() const { return num_new_steps_; }

 private:
  static ReplicationConfig InnerConfig(ReplicationConfig config) {
    config.strategy = &Strategy::kInGraph;
    config.replicas = config.replicas_per_group;
    return config;
  }
  std::unique_ptr<Input> DoMakeInput(const InputFn& input_fn,
                                     InputMode mode) override;

  // Connects to the servers, once all steps are built.
  void Start();
  void AssignAll();
  void Pull(uint32_t step);
  void PullAll();
  void Push(const Step& inner, uint32_t step);
  // Notes the end of the training if the answer announces it.
  bool IsGood(const ServerLink::Answer& answer);
  std::vector<TensorView> Views(const std::vector<std::string>& names);
  void Write(const std::vector<std::string>& names,
             const rpc::Message& tensors);
  void NoteVersions();
  bool HaveVariablesChanged() const;

  const ReplicationConfig config_;
  const int worker_;
  std::unique_ptr<Replicator> inner_;
  std::vector<std::unique_ptr<StepSplit>> splits_;
  rpc::ZmqContext context_;
  std::vector<std::unique_ptr<ServerLink>> servers_;
  bool is_started_ = false;
  bool is_over_ = false;
  bool is_checking_servers_ = false;
  uint64_t sequence_ = 0;
  // the current step, and the number of its pipelines that have delivered
  uint32_t step_ = 0;
  int num_pipelines_ = 0;
  int num_batches_ = 0;
  // the first server's, after the last step
  std::optional<int64_t> version_;
  int64_t num_new_steps_ = 1;
  int64_t num_lost_ = 0;
  std::map<std::string, uint64_t> versions_;
};

class WorkerStep : public Step {
 public:
  WorkerStep(ParameterWorker* worker, uint32_t index,
             std::unique_ptr<Step> inner)
      : worker_(*worker), index_(index), inner_(std::move(inner)) {}

  NextResult Run(Clock::TimePoint deadline) override {
    return worker_.Run(*inner_, index_, deadline);
  }
  TensorView value(std::string_view name) const override {
    return inner_->value(name);
  }
  const runtime::PlanReport& report() const override {
    return inner_->report();
  }
  int group() const override { return worker_.worker(); }
  int64_t num_steps() const override { return worker_.num_new_steps(); }

 private:
  ParameterWorker& worker_;
  const uint32_t index_;
  std::unique_ptr<Step> inner_;
};

NextResult PullingPipeline::Next(Clock::TimePoint deadline,
                                 std::span<const MutableTensorView> batch) {
  const NextResult result = pipeline_->Next(deadline, batch);
  if (result != NextResult::kOk) return result;
  return worker_.TakeBatch() ? result : NextResult::kEnd;
}

std::string PushName(size_t number) { return fmt::format("push/{}", number); }

std::unique_ptr<Input> ParameterWorker::DoMakeInput(const InputFn& input_fn,
                                                    InputMode mode) {
  num_pipelines_ = 0;
  return MakeCheckedInput(
      *inner_,
      [&](const InputContext& context) {
        InputContext own = context;
        own.group_id = worker_;
        own.num_groups = config_.num_groups();
        ++num_pipelines_;
        return std::make_unique<PullingPipeline>(this, input_fn(own));
      },
      mode);
}

std::unique_ptr<Step> ParameterWorker::Build(
    Input& input, const StepFn& step_fn,
    const runtime::CompileOptions& options) {
  REPLICANT_CHECK(!is_started_, "Build: the training has begun");
  std::unique_ptr<StepSplit> split;
  auto inner = inner_->Build(
      input,
      [&](ReplicaContext& replica, const Inputs& batch) {
        StepOutputs outputs = step_fn(replica, batch);
        StepSplit own = SplitStep(replica.graph(), outputs);
        outputs.updates = own.updates;
        for (size_t i = 0; i < own.pushed.size(); ++i) {
          outputs.values.emplace_back(PushName(i), own.pushed[i]);
        }
        // the replicas have the same ones
        if (!split) split = std::make_unique<StepSplit>(std::move(own));
        return outputs;
      },
      options);
  splits_.push_back(std::move(split));
  return std::make_unique<WorkerStep>(
      this, static_cast<uint32_t>(splits_.size() - 1), std::move(inner));
}

void ParameterWorker::Start() {
  is_started_ = true;
  std::vector<const StepSplit*> splits;
  splits.reserve(splits_.size());
  std::string description;
  for (const auto& split : splits_) {
    splits.push_back(split.get());
    description += DescribeSplit(*split);
  }
  const Sharding sharding(splits, static_cast<int>(config_.servers.size()));
  const auto timeout = FromSeconds(config_.timeout_s);
  const auto key = rpc::GroupKey::FromFile(config_.key_file);
  for (size_t i = 0; i < config_.servers.size(); ++i) {
    const auto server = static_cast<int>(i);
    auto link = std::make_unique<ServerLink>(
        context_, server, config_.servers[i], static_cast<uint32_t>(worker_),
        description, timeout, key);
    link->held = HeldVariables(sharding, server);
    for (const StepSplit* split : splits) {
      const ShardStep shard = MakeShardStep(*split, sharding, server);
      link->pulled.push_back(PulledVariables(*split, sharding, server));
      link->pushed.push_back(shard.pushed);
      link->pushed_variables.push_back(shard.pushed_variables);
    }
    servers_.push_back(std::move(link));
  }
  if (worker_ == 0) {
    for (const auto& server : servers_) {
      ServerLink* const waited_for = server.get();
      waited_for->values_to_assign = [this, waited_for] {
        return Views(waited_for->held);
      };
      waited_for->on_long_wait = [this, waited_for] {
        // which may wait, too
        if (std::exchange(is_checking_servers_, true)) return;
        for (const auto& other : servers_) {
          if (other.get() != waited_for) other->CheckServer();
        }
        is_checking_servers_ = false;
      };
    }
  }
  for (const auto& server : servers_) server->Join();
  if (worker_ == 0) AssignAll();
}

NextResult ParameterWorker::Run(Step& inner, uint32_t index,
                                Clock::TimePoint deadline) {
  if (is_over_) return NextResult::kEnd;
  if (!is_started_) {
    Start();
  } else if (worker_ == 0 && HaveVariablesChanged()) {
    AssignAll();
  }
  step_ = index;
  const NextResult result = inner.Run(deadline);
  if (result == NextResult::kOk) Push(inner, index);
  NoteVersions();
  return is_over_ ? NextResult::kEnd : result;
}

bool ParameterWorker::TakeBatch() {
  if (++num_batches_ < num_pipelines_) return true;
  num_batches_ = 0;
  Pull(step_);
  return !is_over_;
}

void ParameterWorker::AssignAll() {
  for (const auto& server : servers_) {
    server->Start(ServerMessage::kAssign, sequence_, 0, Views(server->held),
                  "take variables");
  }
  for (const auto& server : servers_) {
    if (!IsGood(server->Finish())) return;
  }
}

void ParameterWorker::Pull(uint32_t step) {
  ++sequence_;
  const auto start = [&](ServerLink& server) {
    server.Start(ServerMessage::kPull, sequence_, step, {}, "give variables");
  };
  // a pull may have to wait, so all workers pull in the same order
  const bool is_ordered = config_.staleness + 1 < config_.num_groups();
  if (!is_ordered) {
    for (const auto& server : servers_) start(*server);
  }
  for (const auto& server : servers_) {
    if (is_ordered) start(*server);
    const ServerLink::Answer answer = server->Finish();
    if (!IsGood(answer)) return;
    if (!version_) version_ = answer.version;
    Write(server->pulled[step], answer.tensors);
  }
}

void ParameterWorker::PullAll() {
  ++sequence_;
  for (const auto& server : servers_) {
    server->Start(ServerMessage::kPull, sequence_, ServerRequest::kAllVariables,
                  {}, "give all variables");
    const ServerLink::Answer answer = server->Finish();
    if (!IsGood(answer)) return;
    Write(server->held, answer.tensors);
  }
  NoteVersions();
}

void ParameterWorker::Push(const Step& inner, uint32_t step) {
  for (const auto& server : servers_) {
    std::vector<TensorView> tensors;
    tensors.reserve(server->pushed[step].size() +
                    server->pushed_variables[step].size());
    for (const size_t number : server->pushed[step]) {
      tensors.push_back(inner.value(PushName(number)));
    }
    for (const TensorView& view : Views(server->pushed_variables[step])) {
      tensors.push_back(view);
    }
    server->Start(ServerMessage::kPush, sequence_, step, tensors,
                  "take gradients");
  }
  bool is_first = true;
  for (const auto& server : servers_) {
    const ServerLink::Answer answer = server->Finish();
    if (!IsGood(answer)) return;
    if (answer.status == Status::kPullFirst) {
      spdlog::warn(
          "worker {}: a server restarted and a gradient is lost; {} lost so "
          "far",
          worker_, ++num_lost_);
    }
    if (std::exchange(is_first, false)) {
      // a server that was restored counts from its checkpoint
      num_new_steps_ = std::max<int64_t>(answer.version - *version_, 1);
      version_ = answer.version;
    }
  }
}

void ParameterWorker::Stop() {
  if (worker_ != 0 || !is_started_ || is_over_) return;
  is_over_ = true;
  for (const auto& server : servers_) server->End();
}

bool ParameterWorker::IsGood(const ServerLink::Answer& answer) {
  if (answer.status == Status::kEnded) is_over_ = true;
  return !is_over_;
}

std::vector<TensorView> ParameterWorker::Views(
    const std::vector<std::string>& names) {
  std::vector<TensorView> views;
  views.reserve(names.size());
  for (const std::string& name : names) {
    const auto& variable = inner_->variables().at(name);
    views.emplace_back(variable.spec.dtype, variable.spec.shape,
                       variable.buffer->data());
  }
  return views;
}

void ParameterWorker::Write(const std::vector<std::string>& names,
                            const rpc::Message& tensors) {
  std::vector<MutableTensorView> views;
  views.reserve(names.size());
  for (const std::string& name : names) {
    auto& variable = inner_->variables().at(name);
    views.emplace_back(variable.spec.dtype, variable.spec.shape,
                       variable.buffer->data());
    variable.version.Add();
  }
  ReadTensors(tensors, views);
}

void ParameterWorker::NoteVersions() {
  for (const auto& [name, variable] : inner_->variables().variables()) {
    versions_[name] = variable.version.value();
  }
}

bool ParameterWorker::HaveVariablesChanged() const {
  return std::ranges::any_of(
      inner_->variables().variables(), [&](const auto& entry) {
        const auto noted = versions_.find(entry.first);
        return noted == versions_.end() ||
               noted->second != entry.second.version.value();
      });
}

}  // namespace

std::unique_ptr<Replicator> MakeParameterWorker(
    const ReplicationConfig& config, uint64_t seed, int worker,
    const kernels::BackendFactory& make_backend) {
  if (worker < 0 || worker >= config.num_groups()) {
    throw ConfigError(fmt::format(
        "replication: there is no worker {} of {} replicas in groups "
        "of {}; allowed: 0 to {}",
        worker, config.replicas, config.replicas_per_group,
        config.num_groups() - 1));
  }
  return std::make_unique<ParameterWorker>(config, seed, worker, make_backend);
}

}  // namespace replicant::replicator
