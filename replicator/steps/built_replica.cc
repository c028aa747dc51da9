#include "replicator/steps/built_replica.h"

#include <fmt/format.h>

#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "engine/graph/ops/state.h"
#include "replicator/calls/graph_replica.h"
#include "replicator/steps/step_values.h"

namespace replicant::replicator {
namespace {

// A replica's part of a step under construction, for one role of its batch.
class BatchReplica : public GraphReplica {
 public:
  BatchReplica(Graph& graph, ReplicaRank rank, const BuildOptions& options)
      : GraphReplica(graph, rank, options.replica),
        gradient_format_(options.gradient_format),
        sums_(graph, options.accumulation) {}

  const GradientSums& sums() const { return sums_; }

 private:
  Output DoMeanGradient(Output gradient, CallSite site) override {
    const auto reduce = [&](Output mean) {
      // nothing of one replica travels
      return AddAllReduce(
          mean, ReduceOp::kMean, rank(), site,
          num_replicas() > 1 ? gradient_format_ : GradientFormat());
    };
    return sums_.Mean(gradient, reduce, site);
  }
  Output DoRowOffset(int64_t rows_of_all) override {
    return sums_.RowOffset(rows_of_all);
  }

  const GradientFormat gradient_format_;
  GradientSums sums_;
};

// Makes all replicas agree on the variables that each one updates on its own;
// returns the updates that do so.
std::vector<Output> AddVariableAgreement(ReplicaContext& replica,
                                         const std::vector<Output>& outputs,
                                         const std::vector<Output>& updates) {
  // one replica agrees with itself
  if (replica.num_replicas() == 1) return {};
  Graph& graph = replica.graph();
  std::vector<Output> added;
  for (const auto& [id, site] : FindLocalUpdates(graph, outputs, updates)) {
    // copied: adding nodes may move it
    const graph::VariableSpec spec = graph.variable(id);
    if (spec.is_trainable) {
      throw InvalidArgument(fmt::format(
          "{}: '{}' is trained, but every replica would update it differently; "
          "hint: reduce its gradient with WrapOptimizer or AllReduce",
          site.ToString(), spec.name));
    }
    if (spec.agreement == graph::ReplicaAgreement::kPerReplica) continue;
    const Output newest = graph.Read(id, site);
    if (spec.agreement == graph::ReplicaAgreement::kMean &&
        !graph::IsFloating(spec.dtype)) {
      throw InvalidArgument(fmt::format(
          "{}: '{}' differs between the replicas, and {} has no mean; hint: "
          "reduce the values that update it, or declare kFirst or kPerReplica",
          site.ToString(), spec.name, DTypeName(spec.dtype)));
    }
    const Output agreed = spec.agreement == graph::ReplicaAgreement::kMean
                              ? replica.AllReduce(newest, ReduceOp::kMean, site)
                              : replica.Broadcast(newest, /*source=*/0, site);
    added.push_back(graph::Assign(graph, id, agreed, site));
  }
  return added;
}

}  // namespace

ReplicaProgram BuildReplicaProgram(ReplicaRank rank,
                                   const std::vector<InputSpec>& specs,
                                   const StepFn& step_fn,
                                   const BuildOptions& options) {
  Graph graph(options.seed);
  BatchReplica replica(graph, rank, options);
  StepOutputs made = step_fn(replica, AddInputs(graph, specs));
  const bool is_earlier = options.accumulation.role == BatchRole::kEarlier;
  if (options.take_over && !is_earlier) {
    made = options.take_over(graph, std::move(made));
  }
  ReplicaProgram built{.value_names = NamesOf(made),
                       .divides_work = replica.divides_work()};
  for (const VariableId sum : replica.sums().sums()) {
    built.sums.insert(graph.variable(sum).name);
  }
  const std::vector<Output> outputs = ValuesOf(made);
  std::vector<Output> updates =
      is_earlier ? replica.sums().accumulations() : made.updates;
  for (const Output& update : AddVariableAgreement(replica, outputs, updates)) {
    updates.push_back(update);
  }
  // every replica drops the calls whose results nobody needs
  built.program = graph::ExtractProgram(graph, outputs, updates);
  if (is_earlier && replica.sums().AreNeeded(!made.updates.empty())) {
    replica.sums().CheckAccumulates(built.program);
  }
  return built;
}

BuiltReplica BuildReplica(ReplicaRank rank, const std::vector<InputSpec>& specs,
                          const StepFn& step_fn, const BuildOptions& options) {
  ReplicaProgram made = BuildReplicaProgram(rank, specs, step_fn, options);
  graph::Program program = std::move(made.program);
  BuiltReplica built{.value_names = std::move(made.value_names),
                     .sums = std::move(made.sums)};
  built.signature = SignatureOf(program);
  if (options.sharing.count > 1) {
    SharedProgram shared = ShareUpdates(program, options.sharing, rank.count);
    program = std::move(shared.program);
    built.variables = std::move(shared.variables);
  }
  LoweringOptions lowering = options.lowering;
  lowering.in_program_order = made.divides_work;
  LoweredProgram lowered = LowerCollectives(program, lowering);
  AddCalls(lowered, &built.signature);
  built.program = Partition(std::move(lowered.program),
                            options.replica.num_logical_devices);
  return built;
}

}  // namespace replicant::replicator
