#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/kernels/backend.h"
#include "engine/runtime/variable_store.h"
#include "replicator/calls/transfers.h"
#include "replicator/comm/collective_queue.h"
#include "replicator/comm/communicator.h"
#include "replicator/replicator.h"
#include "replicator/steps/built_replica.h"
#include "replicator/steps/compiled_step.h"
#include "replicator/steps/device_team.h"
#include "replicator/steps/processes.h"
#include "replicator/steps/replica_team.h"
#include "replicator/steps/shared_input.h"
#include "replicator/steps/shared_updates.h"
#include "replicator/steps/step_phases.h"
#include "replicator/steps/team_variables.h"

namespace replicant::replicator {

// Hooks around the phases of a step, for a strategy made of synchronous groups
// (parameter_server). Every process of a group has the same ones.
struct PhaseHooks {
  // Takes what the phase's step function gives: BuildOptions::take_over.
  std::function<StepOutputs(size_t phase, Graph& graph, StepOutputs outputs)>
      take_over;
  // Called when all processes have the first batch of an update, before the
  // phase's first run. May write variables(), which then are all replicas'.
  // Returns whether the run goes on; false in one process ends it in all.
  std::function<bool(size_t phase)> begin;
  // Called after the phase's update.
  std::function<void(size_t phase)> end;
};

// Strategies `in_graph` and `between_graph`: replicas that make every step
// together, in one process on groups of its processors, or some in each process
// over MPI or TCP.
//
// Each replica has its plan, store and communicator. All stores
// begin with the same values and get the same updates, so that they stay equal
// bit by bit. Replicas of one process share one copy of the trained variables
// (replicator/steps/shared_updates.h) where their backend's memory is
// the host's; on another backend each replica has a copy. A variable that every
// replica updates with different values is made equal within the step, as its
// ReplicaAgreement says.
//
// A replica that fails ends the step of all.
class SynchronousReplicator : public Replicator {
 public:
  // `process`: this one's number among those that meet over TCP. `group`: the
  // number of this group of parameter_server. Each group draws different
  // random numbers, the first one the same as `single`.
  SynchronousReplicator(const ReplicationConfig& config, uint64_t seed,
                        const kernels::BackendFactory& make_backend,
                        int process = 0, int group = 0);
  ~SynchronousReplicator() override;

  int num_replicas() const override { return local_.total; }
  int accumulation_steps() const override { return config_.accumulation_steps; }
  int process_id() const override { return processes_.rank(); }
  std::unique_ptr<Step> BuildWithHooks(Input& input,
                                       const std::vector<StepFn>& phases,
                                       const runtime::CompileOptions& options,
                                       const PhaseHooks& hooks);
  runtime::VariableStore& variables() override {
    return *replicas_[0].variables;
  }
  void Stop() override {
    if (processes_.size() == 1 || is_stopped_) return;
    // each process has its own result; kEnd wins
    static_cast<void>(Agree(NextResult::kEnd));
  }

  // --- for its steps ---

  // Agrees on the least of all processes' results, of which `own` is this
  // one's. If it is kOk, afterwards all variables equal the first replica's,
  // except sums of gradients, which differ between replicas.
  NextResult Agree(NextResult own);
  // Calls PhaseHooks::begin in all processes. Returns whether the run goes on.
  bool BeginPhase(const PhaseHooks& hooks, size_t phase);
  // Runs work(replica, device) for every logical device of this process's
  // replicas, each on its thread. A failure ends all of them.
  using DeviceWork = std::function<void(size_t, size_t)>;
  void RunTeam(const DeviceWork& work);
  // Runs work(), the plan of one device of a replica.
  template <typename Plan>
  void RunPlan(size_t replica, const Plan& plan) {
    if (device_team_) {
      device_team_->Run(replica, plan);
    } else {
      plan();
    }
  }
  // Notes that only steps have written variables so far.
  void NoteVersions() { team_variables_.NoteVersions(); }

 private:
  // What a replica computes with, shared by its logical devices.
  struct Replica {
    std::unique_ptr<kernels::Backend> backend;
    std::unique_ptr<runtime::VariableStore> variables;
    std::unique_ptr<comm::Communicator> communicator;
    std::unique_ptr<comm::CollectiveQueue> queue;
    // for each program
    std::vector<std::unique_ptr<Channels>> channels;

    void Abort(const std::string& reason) {
      communicator->Abort(reason);
      for (const auto& channel : channels) channel->Abort(reason);
    }
  };

  SynchronousReplicator(const ReplicationConfig& config, uint64_t seed,
                        const kernels::BackendFactory& make_backend,
                        comm::LocalRanks ranks, int group);

  static std::vector<Replica> MakeReplicas(
      const ReplicationConfig& config, uint64_t seed,
      const kernels::BackendFactory& make_backend, int first_on_host,
      std::vector<std::unique_ptr<comm::Communicator>> communicators);
  static std::vector<runtime::VariableStore*> StoresOf(
      const std::vector<Replica>& replicas);
  // Makes the queue of every replica.
  void StartQueues();
  // Lets replicas on devices reach each other without the host.
  void ConnectDevices();
  std::unique_ptr<Input> DoMakeInput(const InputFn& input_fn,
                                     InputMode mode) override {
    return std::make_unique<SharedInput>(this, &processes_, local_, input_fn,
                                         mode);
  }
  std::unique_ptr<Step> DoBuild(
      Input& input, const std::vector<StepFn>& phases,
      const runtime::CompileOptions& options) override {
    return BuildWithHooks(input, phases, options, {});
  }
  std::vector<BuiltReplica> BuildAll(const SharedInput& input,
                                     const StepFn& step_fn,
                                     const BuildOptions& options);
  CompiledStep CompileAll(const std::vector<BuiltReplica>& built,
                          const SharedInput& input,
                          const runtime::CompileOptions& options);
  void AddChannels(const std::vector<BuiltReplica>& built);
  void CheckAgreementOfAll(const std::vector<BuiltReplica>& built);
  void Abort(const std::string& reason) {
    for (Replica& replica : replicas_) replica.Abort(reason);
    if (device_team_) device_team_->Abort(reason);
    for (const auto& updates : shared_updates_) updates->Abort(reason);
  }
  bool IsHostMemory() const { return replicas_[0].backend->is_host_memory(); }
  // Whether the replicas of this process train one copy of the variables. This
  // needs memory that every replica's kernels reach. With bf16 or top-k
  // every replica receives the rounded gradients and makes the update itself.
  bool SharesUpdates() const {
    return replicas_.size() > 1 && config_.gradient_format == DType::kF32 &&
           config_.top_k == 0.0 && IsHostMemory();
  }
  const uint64_t graph_seed_;
  const ReplicationConfig config_;
  // Null for in_graph.
  const std::unique_ptr<comm::Communicator> between_;
  std::vector<Replica> replicas_;
  // null where the host makes the calls
  std::unique_ptr<DeviceTeam> device_team_;
  // for each program
  std::vector<std::unique_ptr<SharedUpdates>> shared_updates_;
  ReplicaTeam team_;
  Processes processes_;
  const LocalReplicas local_;
  TeamVariables team_variables_;
  bool is_stopped_ = false;
  PhaseBuilder build_phase_;
};

}  // namespace replicant::replicator
