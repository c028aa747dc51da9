// The workers of
// replicator/parameter_server/parameter_server_replicator.h.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/rpc/group_key.h"
#include "replicator/parameter_server/accrued_push.h"
#include "replicator/parameter_server/parameter_protocol.h"
#include "replicator/parameter_server/parameter_server_replicator.h"
#include "replicator/parameter_server/parameter_shard.h"
#include "replicator/parameter_server/server_link.h"
#include "replicator/parameter_server/step_split.h"
#include "replicator/strategies/synchronous_replicator.h"

// A group's replicas form a synchronous replicator, in one process
// or in several. The first process of the group, the leader, talks to the
// servers, around each phase of a step: before the phase's first batch it pulls
// the variables, which then are all replicas', and after the phase's update it
// pushes what the phase has made. For a phase that only reads variables, such
// as an evaluation, it pulls without a place among those that will push. It
// pulls when all of the group have their batch, since no worker may wait for a
// worker that waits for its input.
namespace replicant::replicator {
namespace {

using Status = ServerReply::Status;

// A process of a group.
struct GroupRank {
  int group = 0;
  int member = 0;  // 0: the leader

  static GroupRank Of(const ReplicationConfig& config, int worker) {
    return {.group = worker / config.processes_per_group,
            .member = worker % config.processes_per_group};
  }
};

// The group as a synchronous strategy.
ReplicationConfig GroupConfig(ReplicationConfig config, int group) {
  config.replicas = config.replicas_per_group;
  config.strategy = &Strategy::kInGraph;
  if (config.processes_per_group == 1) return config;
  config.strategy = &Strategy::kBetweenGraph;
  config.replicas_per_process = config.replicas / config.processes_per_group;
  config.communicator = ReplicationConfig::Communicator::kTcp;
  if (config.rendezvous != ReplicationConfig::kAuto) {
    config.rendezvous += fmt::format("-group-{}", group);
  }
  return config;
}

class ParameterWorker : public Replicator {
 public:
  ParameterWorker(const ReplicationConfig& config, uint64_t seed,
                  const ProcessRank& process,
                  const kernels::BackendFactory& make_backend)
      : config_(config),
        process_(process),
        worker_(process.index),
        rank_(GroupRank::Of(config, worker_)),
        inner_(std::make_unique<SynchronousReplicator>(
            GroupConfig(config, rank_.group), seed, make_backend, rank_.member,
            rank_.group)) {
    if (!inner_->variables().backend().is_host_memory()) {
      throw ConfigError(
          fmt::format("replication: a worker of parameter servers sends "
                      "variables from host "
                      "memory, which backend {} does not use; use cpu",
                      config.backend));
    }
  }

  int num_replicas() const override { return config_.replicas; }
  int accumulation_steps() const override { return config_.accumulation_steps; }
  int process_id() const override { return worker_; }
  runtime::VariableStore& variables() override {
    if (worker_ == 0 && is_started_ && !is_over_) {
      if (!cut_off_.empty()) throw CommError(cut_off_);
      PullAll();
    }
    return inner_->variables();
  }
  void Stop() override;

  // --- for its steps ---

  NextResult Run(Step& inner, Clock::TimePoint deadline);
  // Run() while no server is away.
  NextResult RunConnected(Step& inner, Clock::TimePoint deadline);
  int group() const { return rank_.group; }
  int64_t num_new_steps() const { return num_new_steps_; }

 private:
  // A phase of a step, as the servers know it: its number is its index here.
  struct Phase {
    std::unique_ptr<StepSplit> split;
    int64_t num_updates = 0;  // of this worker
    AccruedPush accrued;
    // of the step, for the number of steps behind pushes
    int num_phases = 1;
  };

  std::unique_ptr<Input> DoMakeInput(const InputFn& input_fn,
                                     InputMode mode) override;
  std::unique_ptr<Step> DoBuild(
      Input& input, const std::vector<StepFn>& phases,
      const runtime::CompileOptions& options) override;

  bool leads() const { return rank_.member == 0; }
  // Whether the worker updates its copy of the variables between pulls and
  // pushes, as Downpour does.
  bool UpdatesLocally() const {
    return config_.fetch_interval > 1 || config_.push_interval > 1;
  }
  StepOutputs TakeOver(uint32_t number, Graph& graph, StepOutputs outputs);
  // Connects to the servers, once all steps are built.
  void Start();
  void AssignAll();
  // Around a phase: see PhaseHooks.
  bool BeginPhase(uint32_t number);
  void EndPhase(uint32_t number, const Step& inner);
  // Asks for the variables that `step` reads; ServerRequest::kNoVariables: only
  // for a place among those that have pulled.
  void Pull(uint32_t step);
  // Gets the variables of a phase that pushes nothing.
  void Read(uint32_t number);
  void PullAll();
  void Push(uint32_t number);
  void CountSteps(const Phase& phase, int64_t version);
  // Notes the end of the training if the answer announces it.
  bool IsGood(const ServerLink::Answer& answer);
  std::vector<TensorView> Views(const std::vector<std::string>& names);
  void Write(const std::vector<std::string>& names,
             const rpc::Message& tensors);
  void NoteVersions();
  bool HaveVariablesChanged() const;

  const ReplicationConfig config_;
  const ProcessRank process_;
  const int worker_;
  const GroupRank rank_;
  std::unique_ptr<SynchronousReplicator> inner_;
  std::vector<Phase> phases_;
  rpc::ZmqContext context_;
  std::vector<std::unique_ptr<ServerLink>> servers_;  // of a leader
  bool is_started_ = false;
  bool is_over_ = false;
  // why no step is made any more, though the training goes on; empty: all is
  // well
  std::string cut_off_;
  bool is_checking_servers_ = false;
  uint64_t sequence_ = 0;
  // the sequence of the pull that waits for its push
  std::optional<uint64_t> pulled_;
  // the first server's, after the last push
  std::optional<int64_t> version_;
  int64_t num_pushes_of_others_ = 0;
  int64_t num_new_steps_ = 1;
  int64_t num_lost_ = 0;
  std::map<std::string, uint64_t> versions_;
};

class WorkerStep : public Step {
 public:
  explicit WorkerStep(ParameterWorker* worker) : worker_(*worker) {}

  void SetInner(std::unique_ptr<Step> inner) { inner_ = std::move(inner); }
  Step* inner() { return inner_.get(); }

  NextResult Run(Clock::TimePoint deadline) override {
    return worker_.Run(*inner_, deadline);
  }
  TensorView value(std::string_view name) const override {
    return inner_->value(name);
  }
  const runtime::PlanReport& report() const override {
    return inner_->report();
  }
  int group() const override { return worker_.group(); }
  int64_t num_steps() const override { return worker_.num_new_steps(); }

 private:
  ParameterWorker& worker_;
  std::unique_ptr<Step> inner_;
};

std::string PushName(uint32_t number, size_t pushed) {
  return fmt::format("push/{}/{}", number, pushed);
}

std::unique_ptr<Input> ParameterWorker::DoMakeInput(const InputFn& input_fn,
                                                    InputMode mode) {
  return MakeCheckedInput(
      *inner_,
      [&](const InputContext& context) {
        InputContext own = context;
        own.group_id = rank_.group;
        own.num_groups = config_.num_groups();
        return input_fn(own);
      },
      mode);
}

std::unique_ptr<Step> ParameterWorker::DoBuild(
    Input& input, const std::vector<StepFn>& phases,
    const runtime::CompileOptions& options) {
  REPLICANT_CHECK(!is_started_, "Build: the training has begun");
  const auto first = static_cast<uint32_t>(phases_.size());
  phases_.resize(phases_.size() + phases.size());
  for (size_t i = first; i < phases_.size(); ++i) {
    phases_[i].num_phases = static_cast<int>(phases.size());
  }
  auto step = std::make_unique<WorkerStep>(this);
  WorkerStep* const made = step.get();
  PhaseHooks hooks;
  hooks.take_over = [this, first](size_t phase, Graph& graph,
                                  StepOutputs outputs) {
    return TakeOver(first + static_cast<uint32_t>(phase), graph,
                    std::move(outputs));
  };
  hooks.begin = [this, first](size_t phase) {
    return BeginPhase(first + static_cast<uint32_t>(phase));
  };
  hooks.end = [this, first, made](size_t phase) {
    EndPhase(first + static_cast<uint32_t>(phase), *made->inner());
  };
  step->SetInner(inner_->BuildWithHooks(input, phases, options, hooks));
  return step;
}

StepOutputs ParameterWorker::TakeOver(uint32_t number, Graph& graph,
                                      StepOutputs outputs) {
  StepSplit split = SplitStep(graph, outputs);
  if (config_.push_interval > 1) CheckAccrues(split);
  if (!UpdatesLocally()) outputs.updates = split.updates;
  for (size_t i = 0; i < split.pushed.size(); ++i) {
    outputs.values.emplace_back(PushName(number, i), split.pushed[i]);
  }
  // the replicas have the same ones
  auto& kept = phases_[number].split;
  if (!kept) kept = std::make_unique<StepSplit>(std::move(split));
  return outputs;
}

void ParameterWorker::Start() {
  is_started_ = true;
  if (!leads()) return;
  std::vector<const StepSplit*> splits;
  splits.reserve(phases_.size());
  std::string description;
  for (const Phase& phase : phases_) {
    splits.push_back(phase.split.get());
    description += DescribeSplit(*phase.split);
  }
  const Sharding sharding(splits, static_cast<int>(config_.servers.size()));
  const auto key = rpc::GroupKey::FromFile(config_.key_file);
  for (size_t i = 0; i < config_.servers.size(); ++i) {
    const auto server = static_cast<int>(i);
    auto link = std::make_unique<ServerLink>(
        context_,
        ServerLink::Options{
            .server = server,
            .find =
                [this, server] {
                  return process_.find_server
                             ? process_.find_server(server)
                             : config_.servers[static_cast<size_t>(server)];
                },
            .should_stop =
                [this] {
                  return process_.should_stop && process_.should_stop();
                },
            .worker = static_cast<uint32_t>(rank_.group),
            .description = description,
            .timeout = FromSeconds(config_.timeout_s)},
        key);
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

NextResult ParameterWorker::Run(Step& inner, Clock::TimePoint deadline) {
  if (is_over_) {
    // of the others of the group, who wait for this one
    inner_->Stop();
    return NextResult::kEnd;
  }
  if (!cut_off_.empty()) {
    std::this_thread::sleep_until(deadline);
    return NextResult::kTimeout;
  }
  try {
    return RunConnected(inner, deadline);
  } catch (const ServerAway& away) {
    // the other processes of a group notice only that this one ends
    if (config_.processes_per_group > 1) throw;
    spdlog::warn("{}", away.what());
    cut_off_ = away.what();
    return NextResult::kTimeout;
  }
}

NextResult ParameterWorker::RunConnected(Step& inner,
                                         Clock::TimePoint deadline) {
  if (!is_started_) {
    Start();
  } else if (worker_ == 0 && HaveVariablesChanged()) {
    AssignAll();
  }
  num_new_steps_ = 1;
  const NextResult result = inner.Run(deadline);
  NoteVersions();
  return result;
}

bool ParameterWorker::BeginPhase(uint32_t number) {
  if (!leads()) return true;
  if (phases_[number].split->only_reads()) {
    Read(number);
  } else if (phases_[number].num_updates % config_.fetch_interval == 0) {
    Pull(number);
  } else if (!pulled_) {
    Pull(ServerRequest::kNoVariables);
  }
  return !is_over_;
}

void ParameterWorker::EndPhase(uint32_t number, const Step& inner) {
  Phase& phase = phases_[number];
  if (phase.split->only_reads()) return;
  ++phase.num_updates;
  if (!leads()) return;
  std::vector<TensorView> pushed;
  for (size_t i = 0; i < phase.split->pushed.size(); ++i) {
    pushed.push_back(inner.value(PushName(number, i)));
  }
  phase.accrued.Add(pushed);
  if (phase.num_updates % config_.push_interval == 0) Push(number);
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
  // a gradient that accrues keeps the place of its first pull
  if (!pulled_) pulled_ = ++sequence_;
  const auto start = [&](ServerLink& server) {
    server.Start(ServerMessage::kPull, *pulled_, step, {}, "give variables");
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
    if (step == ServerRequest::kNoVariables) continue;
    Write(server->pulled[step], answer.tensors);
  }
}

void ParameterWorker::Read(uint32_t number) {
  ++sequence_;
  for (const auto& server : servers_) {
    server->Start(ServerMessage::kPull, sequence_, number, {},
                  "give variables");
    const ServerLink::Answer answer = server->Finish();
    if (!IsGood(answer)) return;
    Write(server->pulled[number], answer.tensors);
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

void ParameterWorker::Push(uint32_t number) {
  Phase& phase = phases_[number];
  const std::vector<TensorView> sums = phase.accrued.Take();
  for (const auto& server : servers_) {
    std::vector<TensorView> tensors;
    tensors.reserve(server->pushed[number].size() +
                    server->pushed_variables[number].size());
    for (const size_t i : server->pushed[number]) tensors.push_back(sums[i]);
    for (const TensorView& view : Views(server->pushed_variables[number])) {
      tensors.push_back(view);
    }
    server->Start(ServerMessage::kPush, pulled_.value_or(sequence_), number,
                  tensors, "take gradients");
  }
  pulled_.reset();
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
    if (std::exchange(is_first, false)) CountSteps(phase, answer.version);
  }
}

// A push stands for the batches that its gradient has learned from.
void ParameterWorker::CountSteps(const Phase& phase, int64_t version) {
  // a server that was restored counts from its checkpoint
  num_pushes_of_others_ += std::max<int64_t>(version - *version_ - 1, 0);
  version_ = version;
  const int64_t batches =
      int64_t{config_.push_interval} * config_.accumulation_steps;
  num_new_steps_ += num_pushes_of_others_ / phase.num_phases * batches;
  num_pushes_of_others_ %= phase.num_phases;
}

void ParameterWorker::Stop() {
  if (!leads() || !is_started_) return;
  if (!std::exchange(is_over_, true) && worker_ == 0) {
    for (const auto& server : servers_) server->End();
  }
  // of the others of the group
  inner_->Stop();
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
    const ReplicationConfig& config, uint64_t seed, const ProcessRank& rank,
    const kernels::BackendFactory& make_backend) {
  const int worker = rank.index;
  if (worker < 0 || worker >= config.num_workers()) {
    throw ConfigError(
        fmt::format("replication: no worker {} among {} replicas in groups of "
                    "{}; allowed: 0 to {}",
                    worker, config.replicas, config.replicas_per_group,
                    config.num_workers() - 1));
  }
  return std::make_unique<ParameterWorker>(config, seed, rank, make_backend);
}

}  // namespace replicant::replicator
