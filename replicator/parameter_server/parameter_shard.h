#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/runtime/checkpoint.h"
#include "engine/runtime/executor.h"
#include "engine/runtime/variable_store.h"
#include "replicator/parameter_server/parameter_protocol.h"
#include "replicator/parameter_server/staleness_gate.h"
#include "replicator/parameter_server/step_split.h"

namespace replicant::replicator {

// Serves the requests of workers on one parameter server. Holds its part of the
// variables and updates them from pushes with the step's graph, one push at a
// time. StalenessGate decides when.
//
// - Pulls wait until the first worker has assigned the variables once, or they
//   were restored from a checkpoint.
// - A repeated request is answered again and executed once.
// - A worker that begins anew (joins with another run), whose connection is
//   gone, or that is silent for `patience` between pull and push, is no longer
//   waited for.
//
// Thread-safety: one thread.
class ParameterShard {
 public:
  struct Options {
    int server = 0;
    int num_workers = 1;
    int64_t staleness = 0;
    Clock::Duration patience{0};
    uint64_t seed = 0;
  };
  // Counts since the shard was made.
  struct Stats {
    int64_t pushes = 0;
    int64_t lost_pushes = 0;  // whose pulls were no longer known
    int64_t largest_staleness = 0;
  };
  using Reply = std::function<void(rpc::Message)>;

  // All outlive the shard.
  ParameterShard(const Options& options,
                 const std::vector<const StepSplit*>& steps,
                 const Sharding& sharding, kernels::Backend* backend);

  // Takes a request; its answer comes now or in a later call. Throws
  // rpc::MalformedMessage, and InvalidArgument for what does not fit this
  // training; nothing has changed then.
  void Handle(ServerMessage kind, rpc::Message payload, Reply reply,
              Clock::TimePoint now);
  // Stops waiting for silent workers. To be called regularly.
  void Tick(Clock::TimePoint now);
  // The connection of a worker is gone. It may come back.
  void Lose(uint32_t worker);

  // Whether a worker has ended the training.
  bool is_over() const { return is_over_; }
  // Whether every worker still connected was told of the end.
  bool IsEveryoneTold() const;
  int64_t version() const { return gate_.version(); }
  const Stats& stats() const { return stats_; }

  // Contents of a checkpoint: the variables, and the pushes that were executed.
  runtime::HostVariables CopyVariables() const {
    return runtime::CopyVariables(variables_);
  }
  runtime::CheckpointInfo Info() const;
  // Throws as runtime::LoadCheckpoint().
  void Restore(const std::filesystem::path& folder);

 private:
  struct Waiting {
    ServerMessage kind;
    ServerRequest request;
    rpc::Message payload;
    // a repeated request has several
    std::vector<Reply> replies;
  };
  struct Worker {
    uint64_t run = 0;  // 0: has not joined
    uint64_t pulled = 0;
    uint64_t pushed = 0;
    Clock::TimePoint heard_at;
    // left or disconnected: need not be told of the end
    bool is_gone = false;
    bool is_told = false;
  };
  struct ServedStep {
    std::vector<std::string> read;  // variables that a pull returns
    bool only_reads = false;        // StepSplit::only_reads()
    std::unique_ptr<runtime::Executor> plan;
    std::vector<MutableTensorView> inputs;  // values of a push
  };

  void Join(const ServerRequest& request, const rpc::Message& payload);
  void CheckPush(const Waiting& waiting) const;
  void Queue(Waiting waiting);
  // Answers waiting requests as far as the gate allows.
  void Advance();
  // Returns whether the request was answered.
  bool Try(Waiting& waiting, bool may_pull);
  // Whether no push will follow a pull for `step`.
  bool OnlyReads(uint32_t step) const {
    return step == ServerRequest::kAllVariables ||
           (step < steps_.size() && steps_[step].only_reads);
  }
  // The variables that a pull for `step` returns.
  const std::vector<std::string>& Read(uint32_t step) const;
  void Apply(const Waiting& waiting);
  void DropPull(uint32_t worker, std::string_view why);
  // Removes the waiting requests that a worker has given up.
  void DropWaiting(uint32_t worker);
  bool IsWaiting(uint32_t worker) const;
  std::vector<TensorView> Values(const std::vector<std::string>& names) const;
  void Answer(Waiting& waiting, ServerReply::Status status,
              const std::vector<std::string>& names = {});

  const Options options_;
  std::string description_;
  runtime::VariableStore variables_;
  std::vector<std::string> names_;  // of all variables
  std::vector<ServedStep> steps_;
  StalenessGate gate_;
  std::vector<Worker> workers_;
  std::deque<Waiting> waiting_;  // in the order in which they came
  bool is_ready_ = false;
  bool is_over_ = false;
  Stats stats_;
};

// The variables that a pull for the step gives, in order.
std::vector<std::string> PulledVariables(const StepSplit& step,
                                         const Sharding& sharding, int server);
// All variables of a server, in order.
std::vector<std::string> HeldVariables(const Sharding& sharding, int server);

}  // namespace replicant::replicator
