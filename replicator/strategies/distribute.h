#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor/host_tensor.h"
#include "engine/runtime/executor.h"
#include "engine/runtime/variable_store.h"
#include "replicator/calls/agreement.h"
#include "replicator/calls/graph_replica.h"
#include "replicator/comm/collective_queue.h"
#include "replicator/comm/communicator.h"
#include "replicator/steps/processes.h"

// A program with its own graph, optimizer and executor (docs/graph.md), run by
// several processes (the user-transparent programs of MaTEx, arXiv:1704.04560;
// the averages are Horovod's, arXiv:1802.05799):
//
//   const auto processes = Distribute(/*batch_size=*/256);
//   Graph g;
//   DistributedReplica replica(processes.get(), g);
//   const Output x = replica.Input("x", DType::kF32, Shape({256, 24}));
//   ...
//   const Output update = nn::Adam(replica, "adam", parameters,
//                                  replica.MeanGradients(gradients), ...);
//   const auto plan = replica.Compile({.updates = {update}}, store);
//   ... fill plan->input("x"), plan->Run() ...
//
// A launcher starts any number of processes. Every process runs the whole
// program and fills whole batches, and learns from its own part of each:
//
// - An Input() has the rows of this process in its graph.
// - From the first run on, the variables are the first process's.
// - A variable that is not trained, updated from these rows, is made equal by
//   its ReplicaAgreement.
// - A plan's outputs match the outputs of one process: a floating scalar is the
// mean
//   over all processes, and rows are gathered.
//
// So losses must be means over rows. Sums over a batch (SyncBatchNorm, a norm
// of all rows) cover this process's rows only, and random ops without
// RandomOptions::first_row give each process the same numbers.
//
// The processes are those that mpirun has started, or, with these environment
// variables, those that meet over TCP (comm::TcpGroup):
//
//   REPLICANT_PROCESS, REPLICANT_NUM_PROCESSES   this process, their number
//   REPLICANT_RENDEZVOUS                         tcp://HOST:PORT, or a file
//   REPLICANT_RENDEZVOUS_KEY                     the secret of an address
//
// Without either the process is alone.
namespace replicant::replicator {

// The processes that run the program. It outlives replicas and plans. If it is
// destroyed by an exception, it ends the calls of the other processes.
//
// Thread-safety: one thread at a time, for replicas and plans too.
class Distribution {
 public:
  // `ranks` has one rank. Throws as Distribute() for the batch.
  Distribution(comm::LocalRanks ranks, int64_t batch_size);
  ~Distribution();
  Distribution(const Distribution&) = delete;
  Distribution& operator=(const Distribution&) = delete;

  int process() const { return rank_.id; }
  int num_processes() const { return rank_.count; }
  // Whether this process writes what only one should: logs, checkpoints.
  bool leads() const { return process() == 0; }

  // --- for its replicas and plans ---

  ReplicaRank rank() const { return rank_; }
  int64_t batch_size() const { return batch_size_; }
  // The rows of this process.
  int64_t rows() const { return batch_size_ / rank_.count; }
  comm::CollectiveQueue* queue() { return &queue_; }
  // Throws unless all processes compile the same program.
  void CheckSame(const Signature& signature);
  // Gives all processes the first one's variables, once for each variable.
  // Throws InvalidArgument in all of them if they have different ones.
  void Spread(runtime::VariableStore& variables);

 private:
  const std::unique_ptr<comm::Communicator> between_;
  const std::unique_ptr<comm::Communicator> communicator_;
  comm::CollectiveQueue queue_;
  Processes processes_;
  const ReplicaRank rank_;
  const int64_t batch_size_;
  // The memory of variables that are equal everywhere; by owner, as another
  // variable may get the address once it is freed.
  std::set<std::weak_ptr<kernels::Buffer>, std::owner_less<>> spread_;
};

// Throws ConfigError for an environment that cannot be read and for a batch
// that cannot be divided evenly, and what comm::MakeTcpRanks() and
// comm::MakeMpiRanks() throw.
[[nodiscard]] std::unique_ptr<Distribution> Distribute(int64_t batch_size);

// A plan of all processes.
class DistributedPlan {
 public:
  // Memory of the input, to be filled before Run(): the whole batch, of which
  // the plan takes this process's rows. Throws InvalidArgument, naming the
  // inputs, for an unknown name.
  MutableTensorView input(std::string_view name);
  // Value of PlanSpec::outputs[index] after the last Run().
  TensorView output(size_t index) const { return plan_->output(index); }
  // All processes run the plan. Throws what runtime::Executor::Run() throws,
  // CommError, and at the first run InvalidArgument, in all processes, if their
  // stores hold different variables.
  void Run();

 private:
  friend class DistributedReplica;
  DistributedPlan() = default;

  // null for a plan without calls
  Distribution* processes_ = nullptr;
  runtime::VariableStore* variables_ = nullptr;
  std::unique_ptr<runtime::Executor> plan_;
  // the inputs that are divided
  std::map<std::string, HostTensor, std::less<>> batch_;
  int64_t process_ = 0;
};

// This process's part of a graph.
class DistributedReplica : public GraphReplica {
 public:
  // Both arguments outlive the replica.
  DistributedReplica(Distribution* processes, Graph& graph)
      : GraphReplica(graph, processes->rank()), processes_(*processes) {}

  // A tensor of the batch, `shape` [batch size, ...]; the result has the rows
  // of this process. Throws ShapeError for another leading dimension, and what
  // Graph::Input() throws.
  Output Input(const std::string& name, DType dtype, const Shape& shape,
               CallSite site = CallSite::Here());

  // Compiles a plan of the graph; all processes call it. `variables` outlive
  // the plan. Throws what runtime::Executor throws, and InvalidArgument for a
  // trained variable that would differ between processes, for an output that is
  // neither a floating scalar nor made of rows, and for processes whose
  // programs differ.
  std::unique_ptr<DistributedPlan> Compile(
      const runtime::PlanSpec& spec, runtime::VariableStore& variables,
      const runtime::CompileOptions& options = {});

 private:
  // By node: whether it is computed from this process's rows alone.
  std::vector<bool> FindNodesOfRows(const Graph& graph) const;
  bool HasCalls(const Graph& graph) const;
  void AgreeOnUpdates(graph::Program* program) const;
  void MakeOutputsWhole(graph::Program* program) const;

  Distribution& processes_;
  // names of the inputs that are divided
  std::set<std::string> inputs_of_rows_;
};

}  // namespace replicant::replicator
