#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor/tensor_view.h"
#include "engine/graph/passes/passes.h"
#include "replicator/calls/collective_ops.h"

namespace replicant::replicator {

// The batches of an update that a program is for. An update learns from one
// batch, or, with accumulation, from several: all but the last add their
// gradients to sums that every replica keeps, in variables, and change nothing
// else; the last one adds its own, and makes the update.
enum class BatchRole { kOnly, kEarlier, kLast };

// The accumulation of a step's gradients.
struct Accumulation {
  // Batches of an update.
  int steps = 1;
  // Number of the phase among all of a replicator; it names the sums.
  int phase_number = 0;
  BatchRole role = BatchRole::kOnly;
};

// Inputs of an accumulating program besides the batch, filled before each run.
// A program has each of them only if some node reads it.
class AccumulationInputs {
 public:
  static constexpr const char* kIsFirst = "accumulation/is_first";  // bool[]
  static constexpr const char* kNumber = "accumulation/batch";      // i64[]

  // Takes an input of the program if it is one of these; its name may begin
  // with scopes.
  void Add(std::string_view name, MutableTensorView view);
  // Sets the index of the next run's batch in its update.
  void Set(int64_t number) const;

 private:
  std::vector<MutableTensorView> is_first_, number_;
};

// Adds to the graph of one replica what accumulates its gradients: what
// ReplicaContext::MeanGradients() and Rows() need.
class GradientSums {
 public:
  using Reduce = std::function<Output(Output)>;

  GradientSums(Graph& graph, const Accumulation& accumulation)
      : graph_(graph), accumulation_(accumulation) {}

  // The gradient of the update, reduced by `reduce`; with an earlier batch the
  // gradient itself, which no update takes.
  Output Mean(Output gradient, const Reduce& reduce, CallSite site);
  // ReplicaContext::DoRowOffset().
  Output RowOffset(int64_t rows_of_all);

  // The updates that add gradients to their sums, and the variables of these
  // sums.
  const std::vector<Output>& accumulations() const { return accumulations_; }
  const std::set<VariableId>& sums() const { return sums_; }

  // Whether a step accumulates: false for one without updates and gradients,
  // such as an evaluation, which runs on each batch alone.
  bool AreNeeded(bool has_updates) const {
    return has_updates || !sums_.empty();
  }
  // Throws InvalidArgument if `program`, of an earlier batch, updates anything
  // but sums, or has none.
  void CheckAccumulates(const graph::Program& program) const;

 private:
  // An input is placed on the first device, wherever it is used.
  Output HostInput(const char* name, DType dtype);

  Graph& graph_;
  const Accumulation accumulation_;
  std::vector<Output> accumulations_;
  std::set<VariableId> sums_;
  std::map<std::string, Output> host_inputs_;
};

}  // namespace replicant::replicator
