#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/tensor/reduce_op.h"
#include "engine/graph/graph.h"
#include "engine/nn/nested.h"

namespace replicant::nn {

using graph::CallSite;
using graph::Graph;
using graph::Output;
using graph::VariableId;

// An optimizer as a step function calls it: adds the update of `parameters` by
// `gradients` (one each) to the graph and returns it.
using Optimizer = std::function<Output(const std::vector<VariableId>&,
                                       const std::vector<Output>&)>;

struct ReplicaOptions {
  // Devices among which the ops of a replica are divided.
  int num_logical_devices = 1;
  // Factor on the learning rates of the optimizers (engine/nn/optimizers.h),
  // for replicas whose batches differ from their configuration.
  double learning_rate_scale = 1.0;
};

// One replica while its part of a step is built: the argument of step functions
// (TF-Replicator, arXiv:1902.00465, section 3).
//
// The primitives may be used anywhere in a step. Contract: every replica calls
// the same primitives on the same types in the same order. They throw
// ShapeError at `site` for types that do not fit.
//
// Thread-safety: one thread at a time.
class ReplicaContext {
 public:
  virtual ~ReplicaContext() = default;

  // The graph in which the step is built.
  Graph& graph() const { return graph_; }
  int replica_id() const { return replica_id_; }
  int num_replicas() const { return num_replicas_; }
  int num_logical_devices() const { return options_.num_logical_devices; }
  double learning_rate_scale() const { return options_.learning_rate_scale; }

  // Places ops added while the result lives, and variables that they read
  // first, on one of this replica's logical devices. Tensors move between
  // devices automatically.
  //
  //   const auto device = replica.LogicalDevice(1);
  //
  // Throws InvalidArgument for an unknown device.
  [[nodiscard]] Graph::DeviceScope LogicalDevice(
      int device, CallSite site = CallSite::Here());

  // x reduced over all replicas, elementwise; each gets the result. kMean is
  // for floating x.
  Output AllReduce(Output x, ReduceOp op, CallSite site = CallSite::Here());
  std::vector<Output> AllReduce(const std::vector<Output>& xs, ReduceOp op,
                                CallSite site = CallSite::Here());
  // A structure of Outputs (engine/nn/nested.h), reduced in one call: all
  // of its tensors, in one bucket where they fit.
  template <NestedOutputs T>
  T AllReduce(T structure, ReduceOp op, CallSite site = CallSite::Here()) {
    return MapOutputs(std::move(structure), [&](const std::vector<Output>& xs) {
      return AllReduce(xs, op, site);
    });
  }
  Output AllSum(Output x, CallSite site = CallSite::Here()) {
    return AllReduce(x, ReduceOp::kSum, site);
  }
  Output AllMin(Output x, CallSite site = CallSite::Here()) {
    return AllReduce(x, ReduceOp::kMin, site);
  }
  Output AllMax(Output x, CallSite site = CallSite::Here()) {
    return AllReduce(x, ReduceOp::kMax, site);
  }
  // [...] -> [num_replicas, ...]: every replica's x.
  Output AllGather(Output x, CallSite site = CallSite::Here());
  // [num_replicas * n, ...] -> [n, ...]: this replica's rows of the reduced x.
  Output ReduceScatter(Output x, ReduceOp op, CallSite site = CallSite::Here());
  // The x of replica `source`. Throws InvalidArgument for an unknown replica.
  Output Broadcast(Output x, int source, CallSite site = CallSite::Here());
  // Structures, tensor by tensor.
  template <NestedOutputs T>
  T AllGather(T structure, CallSite site = CallSite::Here()) {
    return MapOutputs(std::move(structure), [&](std::vector<Output> xs) {
      for (Output& x : xs) x = AllGather(x, site);
      return xs;
    });
  }
  template <NestedOutputs T>
  T Broadcast(T structure, int source, CallSite site = CallSite::Here()) {
    return MapOutputs(std::move(structure), [&](std::vector<Output> xs) {
      for (Output& x : xs) x = Broadcast(x, source, site);
      return xs;
    });
  }

  // The position of this replica's `rows` rows of a batch among all rows of an
  // update. Random ops use it (graph::RandomOptions), so that the draws do not
  // depend on the number of replicas and batches.
  struct RowRange {
    int64_t first_row = 0;
    Output row_offset;
  };
  RowRange Rows(int64_t rows) {
    return {.first_row = replica_id_ * rows,
            .row_offset = DoRowOffset(num_replicas_ * rows)};
  }

  // fn(x) of every replica, reduced or gathered.
  using MapFn = std::function<Output(Output)>;
  Output MapReduce(const MapFn& fn, Output x, ReduceOp op,
                   CallSite site = CallSite::Here()) {
    return AllReduce(fn(x), op, site);
  }
  Output MapGather(const MapFn& fn, Output x,
                   CallSite site = CallSite::Here()) {
    return AllGather(fn(x), site);
  }

  // Pieces of work, such as the factors of K-FAC or the rows of an evaluation.
  // Only replica i computes pieces[i] and every num_replicas-th piece after it.
  // A piece builds its ops and returns their results; every replica calls it
  // and drops those not its own. A piece calls no primitive and updates no
  // variable. Results may differ in number and type from piece to piece.
  //
  // Gradients flow back into what the pieces read, as through Broadcast().
  using Piece = std::function<std::vector<Output>()>;
  // Every replica gets the results of every piece, bit for bit.
  std::vector<std::vector<Output>> MapGather(const std::vector<Piece>& pieces,
                                             CallSite site = CallSite::Here());
  // All pieces' results reduced, one by one. A sum or mean travels as one
  // AllReduce. For kMin, kMax and kProd every replica gets all results and
  // combines them in the order of the pieces, bit for bit as one replica does;
  // here kProd has a gradient. Throws InvalidArgument for no pieces or if they
  // differ in the number of results, and ShapeError if they differ in a type or
  // shape, for bool, and for a mean of integers.
  std::vector<Output> MapReduce(const std::vector<Piece>& pieces, ReduceOp op,
                                CallSite site = CallSite::Here());
  // Whether there were pieces, so that replicas compute in different orders.
  bool divides_work() const { return divides_work_; }

  // The gradients for an optimizer: means over all replicas and over all
  // batches of an update. Each gradient of a step is passed once.
  std::vector<Output> MeanGradients(const std::vector<Output>& gradients,
                                    CallSite site = CallSite::Here());
  // `optimizer` on MeanGradients().
  Optimizer WrapOptimizer(Optimizer optimizer,
                          CallSite site = CallSite::Here());

 protected:
  ReplicaContext(Graph& graph, int replica_id, int num_replicas,
                 const ReplicaOptions& options)
      : graph_(graph),
        replica_id_(replica_id),
        num_replicas_(num_replicas),
        options_(options) {}

 private:
  // The results of a piece on the replica that computes it, and tensors of the
  // same types elsewhere.
  std::vector<Output> ResultsOf(const Piece& piece, int owner, CallSite site);

  // Arguments are checked already.
  virtual Output DoAllReduce(Output x, ReduceOp op, CallSite site) = 0;
  virtual Output DoAllGather(Output x, CallSite site) = 0;
  virtual Output DoReduceScatter(Output x, ReduceOp op, CallSite site) = 0;
  virtual Output DoBroadcast(Output x, int source, CallSite site) = 0;
  virtual Output DoMeanGradient(Output gradient, CallSite site) {
    return DoAllReduce(gradient, ReduceOp::kMean, site);
  }
  // Number of rows in the update's earlier batches, `rows_of_all` each; an
  // invalid Output if there are none.
  virtual Output DoRowOffset(int64_t /*rows_of_all*/) { return {}; }

  Graph& graph_;
  int replica_id_;
  int num_replicas_;
  bool divides_work_ = false;
  ReplicaOptions options_;
};

// Opens the scope of the logical device that part `index` of `count` parts of a
// network is on, if neighbouring parts are divided evenly among the devices.
[[nodiscard]] inline Graph::DeviceScope DeviceOfPart(Graph& graph, size_t index,
                                                     size_t count,
                                                     int num_devices) {
  return {graph, static_cast<int32_t>(index * static_cast<size_t>(num_devices) /
                                      count)};
}

}  // namespace replicant::nn
