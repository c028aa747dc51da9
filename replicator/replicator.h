#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/tensor/tensor_view.h"
#include "engine/nn/replica_context.h"
#include "engine/runtime/executor.h"
#include "engine/runtime/variable_store.h"
#include "replicator/input.h"
#include "replicator/replication_config.h"

// A step written for one replica, run on as many as the configuration says,
// after TF-Replicator (arXiv:1902.00465). Replicas that make their steps
// together are a group. A primitive spans the replicas of one group, and so
// does a batch.
//
//   auto replicator = MakeReplicator(config.replication, seed);
//   auto input = replicator->MakeInput(input_fn);
//   auto step = replicator->Build(*input, [&](ReplicaContext& replica,
//                                             const Inputs& batch) {
//     Output loss = Loss(batch.at("observation"));
//     Output update = replica.WrapOptimizer(adam)(parameters,
//                                                 Gradients(loss, ...));
//     return StepOutputs{.values = {{"loss", loss}}, .updates = {update}};
//   });
//   while (step->Run(deadline) == NextResult::kOk) Log(step->value("loss"));
//
// Thread-safety: one thread makes all calls; see runtime::Executor.
namespace replicant::replicator {

using graph::CallSite;
using graph::Graph;
using graph::Output;
using graph::VariableId;
using nn::Optimizer;
using nn::ReplicaContext;

// The batch of one replica while a step is built.
class Inputs {
 public:
  explicit Inputs(std::vector<std::pair<std::string, Output>> tensors)
      : tensors_(std::move(tensors)) {}

  // Throws InvalidArgument, listing the known names.
  Output at(std::string_view name, CallSite site = CallSite::Here()) const;

 private:
  std::vector<std::pair<std::string, Output>> tensors_;
};

// The result of a step function.
struct StepOutputs {
  // Values to read after a run, by name.
  std::vector<std::pair<std::string, Output>> values;
  // Nodes that write variables.
  std::vector<Output> updates;
};

using StepFn = std::function<StepOutputs(ReplicaContext&, const Inputs&)>;

// The batches of an input function; steps draw from it. Several steps may
// share one: each batch then goes to one of them, in the order of their
// runs.
class Input {
 public:
  virtual ~Input() = default;
};

// Seconds that a step waited in calls between replicas. Each call counts only
// the wait of the replica that reached it last, so that differences in speed
// between replicas do not count.
struct ReduceTimes {
  // For gradients: in buckets that are reduced while the plan goes on, or
  // before updates that replicas make together.
  double buckets_s = 0.0;
  double calls_s = 0.0;  // calls whose result is needed at once
};

// A step, compiled for every replica.
class Step {
 public:
  virtual ~Step() = default;

  // Waits for a batch until `deadline` and makes one step with it: an update of
  // the variables, or, with ReplicationConfig::accumulation_steps, a part of
  // one, whose `updates` run with its last batch; a step without updates runs
  // whole on each batch. Any other result than kOk means that no replica has
  // run: processes agree before a step, and a batch that has arrived is kept
  // for the next. Throws what the input throws, and what
  // runtime::Executor::Run() throws.
  virtual NextResult Run(Clock::TimePoint deadline) = 0;

  // A value of the last step that ran, from the first replica of this
  // process. Throws InvalidArgument, listing the known names, for an unknown
  // name.
  virtual TensorView value(std::string_view name) const = 0;

  // Number of steps between the last two calls of Run(), including steps of
  // groups in other processes.
  virtual int64_t num_steps() const { return 1; }

  // The group of the last step: InputContext::group_id of its input.
  virtual int group() const { return 0; }

  // Waits of the last step, over the replicas of this process.
  virtual ReduceTimes reduce_times() const { return {}; }

  // The plan, for a log.
  virtual const runtime::PlanReport& report() const = 0;
  // runtime::Executor::profile() of the first plan; empty where steps keep
  // none.
  virtual std::vector<runtime::KernelProfile> profile() const { return {}; }
};

// The process of a run that makes a replicator, where processes cannot find it
// out themselves.
struct ProcessRank {
  // A parameter server or a worker. Only parameter_server has servers.
  bool is_server = false;
  // The number of the process among its kind.
  int index = 0;
  // The folder of a server's checkpoints; empty for none.
  std::filesystem::path folder = {};
  // A worker's: the present address of a server that may move to another host,
  // empty while it is away. Null: it is the one in ReplicationConfig::servers.
  std::function<std::string(int server)> find_server = {};
  // A worker's: whether the process was asked to end. It then waits no longer
  // for a server that is away. Null: never.
  std::function<bool()> should_stop = {};
};

class Replicator {
 public:
  virtual ~Replicator() = default;

  // Number of replicas in all groups.
  virtual int num_replicas() const = 0;
  // Steps that make one update together (ReplicationConfig).
  virtual int accumulation_steps() const { return 1; }
  // Index of this process in the run. The first process leads: it logs, saves
  // and publishes.
  virtual int process_id() const { return 0; }

  // Calls `input_fn` for each pipeline that `mode` gives this process. A batch
  // with invalid numbers (replicator/checked_pipeline.h) ends Step::Run()
  // with runtime::NumericError.
  std::unique_ptr<Input> MakeInput(const InputFn& input_fn,
                                   InputMode mode = InputMode::kPerWorker);

  // Calls `step_fn` for each replica and compiles what they built. `input` is
  // one of this replicator's (checked); it and the replicator outlive the step.
  // Throws what `step_fn` and runtime::Executor throw, and InvalidArgument if
  // two values have one name, if the replicas' steps do not agree
  // (replicator/calls/agreement.h), or if a trained variable would differ
  // between replicas.
  std::unique_ptr<Step> Build(Input& input, const StepFn& step_fn,
                              const runtime::CompileOptions& options = {}) {
    return BuildJoint(input, {step_fn}, options);
  }

  // A step of several phases, such as both updates of a GAN: every phase learns
  // from the step's batch, one phase after the other, and sees what those
  // before it have updated. A phase is built as a step is, with its own
  // variables, values and optimizers. Variables that it does not update keep
  // the values that the previous phase left.
  //
  // With ReplicationConfig::accumulation_steps the first phase runs on one
  // batch in every Run(), and the others run on all batches of the update in
  // its last Run(). A value is from the last batch that its phase ran on. A
  // step whose phases all have no updates and no gradients does not accumulate:
  // each Run() runs all phases on one batch.
  //
  // Throws as Build() does, and InvalidArgument for no phases.
  std::unique_ptr<Step> BuildJoint(Input& input,
                                   const std::vector<StepFn>& phases,
                                   const runtime::CompileOptions& options = {});

  // The variables of all steps, valid between steps; do not touch them while a
  // step runs. Where replicas have copies, these are the first one's, and the
  // next step copies the first process's writes to all. Waits for steps in
  // progress.
  virtual runtime::VariableStore& variables() = 0;

  // Whether steps have begun that no Run() has returned yet: replicas that do
  // not wait for each other begin more than one.
  virtual bool HasResults() const { return false; }

  // Ends the run of all processes: Step::Run() returns kEnd in processes that
  // still call it. For a process that ends before the others.
  virtual void Stop() {}

 protected:
  // MakeInput() of `inner` for pipelines whose batches are checked already.
  static std::unique_ptr<Input> MakeCheckedInput(Replicator& inner,
                                                 const InputFn& input_fn,
                                                 InputMode mode) {
    return inner.DoMakeInput(input_fn, mode);
  }

 private:
  virtual std::unique_ptr<Input> DoMakeInput(const InputFn& input_fn,
                                             InputMode mode) = 0;
  // There is at least one phase.
  virtual std::unique_ptr<Step> DoBuild(
      Input& input, const std::vector<StepFn>& phases,
      const runtime::CompileOptions& options) = 0;
};

}  // namespace replicant::replicator
