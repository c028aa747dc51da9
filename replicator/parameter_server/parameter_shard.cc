#include "replicator/parameter_server/parameter_shard.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "engine/runtime/checkpoint.h"

namespace replicant::replicator {
namespace {

using Status = ServerReply::Status;

constexpr const char* kWorkers = "workers";

// The first line in which the texts differ.
std::string FirstDifference(const std::string& own, const std::string& other) {
  std::istringstream own_lines(own);
  std::istringstream other_lines(other);
  std::string own_line;
  std::string other_line;
  do {
    if (!std::getline(own_lines, own_line)) own_line = "nothing more";
    if (!std::getline(other_lines, other_line)) other_line = "nothing more";
  } while (own_line == other_line && own_line != "nothing more");
  return fmt::format("\"{}\" here, \"{}\" there", own_line, other_line);
}

}  // namespace

std::vector<std::string> PulledVariables(const StepSplit& step,
                                         const Sharding& sharding, int server) {
  std::vector<std::string> names;
  for (const std::string& name : step.read_variables) {
    const auto held = sharding.servers().find(name);
    if (held != sharding.servers().end() && held->second[0] == server) {
      names.push_back(name);
    }
  }
  return names;
}

std::vector<std::string> HeldVariables(const Sharding& sharding, int server) {
  std::vector<std::string> names;
  for (const auto& [name, servers] : sharding.servers()) {
    if (sharding.IsHeldBy(name, server)) names.push_back(name);
  }
  return names;
}

ParameterShard::ParameterShard(const Options& options,
                               const std::vector<const StepSplit*>& steps,
                               const Sharding& sharding,
                               kernels::Backend* backend)
    : options_(options),
      variables_(*backend, options.seed),
      names_(HeldVariables(sharding, options.server)),
      gate_(options.staleness),
      workers_(static_cast<size_t>(options.num_workers)) {
  for (const StepSplit* step : steps) {
    description_ += DescribeSplit(*step);
    ShardStep shard = MakeShardStep(*step, sharding, options.server);
    ServedStep served{
        .read = PulledVariables(*step, sharding, options.server),
        .only_reads = step->only_reads(),
        .plan = std::make_unique<runtime::Executor>(
            *shard.program.graph,
            runtime::PlanSpec{.outputs = {}, .updates = shard.program.updates},
            variables_),
        .inputs = {}};
    for (const size_t number : shard.pushed) {
      served.inputs.push_back(
          served.plan->input(fmt::format("push/{}", number)));
    }
    for (const std::string& name : shard.pushed_variables) {
      served.inputs.push_back(served.plan->input("variable/" + name));
    }
    steps_.push_back(std::move(served));
  }
}

void ParameterShard::Handle(ServerMessage kind, rpc::Message payload,
                            Reply reply, Clock::TimePoint now) {
  const ServerRequest request = rpc::DecodeFirstPart<ServerRequest>(payload);
  if (request.worker >= workers_.size()) {
    throw InvalidArgument(
        fmt::format("worker {} of {}", request.worker, workers_.size()));
  }
  Worker& worker = workers_[request.worker];
  if (kind == ServerMessage::kJoin) Join(request, payload);
  worker.heard_at = now;
  worker.is_gone = false;
  Waiting waiting{.kind = kind,
                  .request = request,
                  .payload = std::move(payload),
                  .replies = {}};
  waiting.replies.push_back(std::move(reply));
  if (worker.run != request.run) return Answer(waiting, Status::kJoinFirst);
  if (request.worker != 0 &&
      (kind == ServerMessage::kEnd || kind == ServerMessage::kAssign)) {
    throw InvalidArgument("is for the first worker");
  }
  if (kind == ServerMessage::kEnd) {
    is_over_ = true;
    for (Waiting& other : waiting_) Answer(other, Status::kEnded);
    waiting_.clear();
    return Answer(waiting, Status::kOk);
  }
  if (is_over_) return Answer(waiting, Status::kEnded);
  switch (kind) {
    case ServerMessage::kPull:
    case ServerMessage::kPush:
      if (request.step < ServerRequest::kNoVariables &&
          request.step >= steps_.size()) {
        throw InvalidArgument(
            fmt::format("step {} of {}", request.step, steps_.size()));
      }
      if (kind == ServerMessage::kPush) CheckPush(waiting);
      Queue(std::move(waiting));
      break;
    case ServerMessage::kAssign: {
      std::vector<MutableTensorView> targets;
      targets.reserve(names_.size());
      for (const std::string& name : names_) {
        runtime::VariableStore::Variable& variable = variables_.at(name);
        targets.emplace_back(variable.spec.dtype, variable.spec.shape,
                             variable.buffer->data());
        variable.version.Add();
      }
      ReadTensors(std::span(waiting.payload).subspan(1), targets);
      is_ready_ = true;
      Answer(waiting, Status::kOk);
      break;
    }
    default:
      Answer(waiting, Status::kOk);
  }
  Advance();
}

void ParameterShard::Join(const ServerRequest& request,
                          const rpc::Message& payload) {
  const std::string other =
      payload.size() > 1 ? std::string(payload[1].text()) : "";
  if (other != description_) {
    throw InvalidArgument(fmt::format(
        "worker {} builds other steps than this server: {}; hint: all "
        "programs of a run read one configuration",
        request.worker, FirstDifference(description_, other)));
  }
  Worker& worker = workers_[request.worker];
  if (worker.run == request.run) return;
  const bool is_again = worker.run != 0;
  spdlog::info("worker {} joins{}", request.worker, is_again ? " again" : "");
  if (is_again) DropPull(request.worker, "has begun anew");
  worker = {.run = request.run};
}

void ParameterShard::CheckPush(const Waiting& waiting) const {
  if (waiting.request.step >= ServerRequest::kNoVariables) {
    throw InvalidArgument("a push belongs to one step");
  }
  CheckTensors(std::span(waiting.payload).subspan(1),
               steps_[waiting.request.step].inputs);
}

void ParameterShard::Queue(Waiting waiting) {
  const ServerRequest& request = waiting.request;
  Worker& worker = workers_[request.worker];
  for (Waiting& other : waiting_) {
    if (other.request.worker != request.worker) continue;
    if (other.kind == waiting.kind &&
        other.request.sequence == request.sequence) {
      other.replies.push_back(std::move(waiting.replies[0]));
      return;
    }
  }
  // the worker has given up its earlier request
  DropWaiting(request.worker);
  if (waiting.kind == ServerMessage::kPush) {
    if (request.sequence <= worker.pushed) {
      return Answer(waiting, Status::kOk);
    }
    if (!gate_.Has(request.worker) || worker.pulled != request.sequence) {
      ++stats_.lost_pushes;
      return Answer(waiting, Status::kPullFirst);
    }
  } else if (gate_.Has(request.worker) && !OnlyReads(request.step)) {
    if (worker.pulled == request.sequence) {
      // the answer was lost, or the worker pulls anew for a gradient that goes
      // on to accrue; both keep the version of the first request, the oldest
      return Answer(waiting, Status::kOk, Read(request.step));
    }
    DropPull(request.worker, "pulls again");
  }
  waiting_.push_back(std::move(waiting));
}

void ParameterShard::Advance() {
  bool has_moved = true;
  while (has_moved) {
    has_moved = false;
    bool may_pull = is_ready_;
    for (auto waiting = waiting_.begin(); waiting != waiting_.end();
         ++waiting) {
      if (Try(*waiting, may_pull)) {
        waiting_.erase(waiting);
        has_moved = true;
        break;
      }
      // requests behind one that needs all pushes do not overtake it
      may_pull =
          may_pull && waiting->request.step != ServerRequest::kAllVariables;
    }
  }
}

bool ParameterShard::Try(Waiting& waiting, bool may_pull) {
  const ServerRequest& request = waiting.request;
  Worker& worker = workers_[request.worker];
  if (waiting.kind == ServerMessage::kPush) {
    if (!gate_.CanPush(request.worker)) return false;
    Apply(waiting);
    worker.pushed = request.sequence;
    Answer(waiting, Status::kOk);
    return true;
  }
  if (is_ready_ && request.step < ServerRequest::kNoVariables &&
      OnlyReads(request.step)) {
    Answer(waiting, Status::kOk, Read(request.step));
    return true;
  }
  if (!may_pull) return false;
  if (request.step == ServerRequest::kAllVariables) {
    // between steps, so that no step is half done; the worker's own may be, if
    // it accumulates, and goes on
    if (!gate_.IsEmptyBut(request.worker)) return false;
    Answer(waiting, Status::kOk, names_);
    return true;
  }
  if (!gate_.CanPull()) return false;
  gate_.Pull(request.worker);
  worker.pulled = request.sequence;
  Answer(waiting, Status::kOk, Read(request.step));
  return true;
}

const std::vector<std::string>& ParameterShard::Read(uint32_t step) const {
  static const std::vector<std::string> none;
  return step == ServerRequest::kNoVariables ? none : steps_[step].read;
}

void ParameterShard::Apply(const Waiting& waiting) {
  ServedStep& step = steps_[waiting.request.step];
  ReadTensors(std::span(waiting.payload).subspan(1), step.inputs);
  step.plan->Run();
  ++stats_.pushes;
  stats_.largest_staleness =
      std::max(stats_.largest_staleness, gate_.Push(waiting.request.worker));
}

void ParameterShard::DropPull(uint32_t worker, std::string_view why) {
  DropWaiting(worker);
  if (!gate_.Has(worker)) return;
  gate_.Drop(worker);
  spdlog::warn("server {}: worker {} {}; its step is left out", options_.server,
               worker, why);
}

void ParameterShard::DropWaiting(uint32_t worker) {
  for (auto waiting = waiting_.begin(); waiting != waiting_.end();) {
    if (waiting->request.worker != worker) {
      ++waiting;
      continue;
    }
    // nobody listens, but a request without an answer is kept for ever
    Answer(*waiting, Status::kJoinFirst);
    waiting = waiting_.erase(waiting);
  }
}

bool ParameterShard::IsWaiting(uint32_t worker) const {
  return std::ranges::any_of(waiting_, [worker](const Waiting& waiting) {
    return waiting.request.worker == worker;
  });
}

void ParameterShard::Tick(Clock::TimePoint now) {
  for (uint32_t i = 0; i < workers_.size(); ++i) {
    if (gate_.Has(i) && !IsWaiting(i) &&
        now - workers_[i].heard_at >= options_.patience) {
      DropPull(i, "is silent");
    }
  }
  Advance();
}

void ParameterShard::Lose(uint32_t worker) {
  if (worker >= workers_.size()) return;
  workers_[worker].is_gone = true;
  // what waits is executed, and answered where the worker is then
  if (!IsWaiting(worker)) DropPull(worker, "has lost its connection");
  Advance();
}

bool ParameterShard::IsEveryoneTold() const {
  return std::ranges::all_of(workers_, [](const Worker& worker) {
    return worker.run == 0 || worker.is_gone || worker.is_told;
  });
}

std::vector<TensorView> ParameterShard::Values(
    const std::vector<std::string>& names) const {
  std::vector<TensorView> values;
  values.reserve(names.size());
  for (const std::string& name : names) {
    const runtime::VariableStore::Variable& variable = variables_.at(name);
    values.emplace_back(variable.spec.dtype, variable.spec.shape,
                        variable.buffer->data());
  }
  return values;
}

void ParameterShard::Answer(Waiting& waiting, Status status,
                            const std::vector<std::string>& names) {
  if (is_over_) workers_[waiting.request.worker].is_told = true;
  for (const Reply& reply : waiting.replies) {
    rpc::Message message = rpc::EncodeMessage(
        ServerReply{.status = status, .version = gate_.version()});
    AddTensors(Values(names), &message);
    reply(std::move(message));
  }
}

runtime::CheckpointInfo ParameterShard::Info() const {
  std::string workers;
  for (const Worker& worker : workers_) {
    workers += fmt::format("{} {}\n", worker.run, worker.pushed);
  }
  return {.step = gate_.version(), .metadata = {{kWorkers, workers}}};
}

void ParameterShard::Restore(const std::filesystem::path& folder) {
  const runtime::CheckpointInfo info =
      runtime::LoadCheckpoint(folder, variables_);
  gate_ = StalenessGate(options_.staleness, info.step);
  // so that a repeated push is not executed twice
  const auto found = info.metadata.find(kWorkers);
  std::istringstream workers(found == info.metadata.end() ? "" : found->second);
  for (Worker& worker : workers_) workers >> worker.run >> worker.pushed;
  is_ready_ = true;
}

}  // namespace replicant::replicator
