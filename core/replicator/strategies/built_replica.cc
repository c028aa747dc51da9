#include "core/replicator/strategies/built_replica.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/graph/ops/elementwise.h"
#include "core/graph/ops/state.h"
#include "core/replicator/graph/graph_replica.h"
#include "core/replicator/strategies/step_interface.h"

namespace replicant::replicator {
namespace {

// A replica's part of a step under construction, for one role of its batch.
class BatchReplica : public GraphReplica {
 public:
  BatchReplica(Graph& graph, ReplicaPlace place, const BuildOptions& options)
      : GraphReplica(graph, place, options.logical_devices),
        options_(options) {}

  // The updates that add gradients to their sums, and the variables of these
  // sums.
  const std::vector<Output>& accumulations() const { return accumulations_; }
  const std::set<VariableId>& sums() const { return sums_; }

 private:
  Output DoMeanGradient(Output gradient, CallSite site) override {
    if (options_.role == BatchRole::kOnly) return Reduce(gradient, site);
    const Graph::DeviceScope device(graph(), gradient.producer().device);
    const VariableId sum = graph().AddVariable(
        {.name = fmt::format("accumulation/{}/{}", options_.step_number,
                             sums_.size()),
         .dtype = gradient.dtype(),
         .shape = gradient.shape(),
         .is_trainable = false,
         .agreement = graph::ReplicaAgreement::kPerReplica},
        site);
    sums_.insert(sum);
    const Output total = graph::Add(graph().Read(sum, site), gradient, site);
    if (options_.role == BatchRole::kLast) {
      const double factor = 1.0 / options_.accumulation_steps;
      return Reduce(graph::Mul(total, factor, site), site);
    }
    // overwrites what an earlier update has left
    const Output value = graph::Where(HostInput(kIsFirstBatch, DType::kBool),
                                      gradient, total, site);
    accumulations_.push_back(graph::Assign(graph(), sum, value, site));
    return gradient;
  }

  Output DoRowOffset(int64_t rows_of_all) override {
    if (options_.role == BatchRole::kOnly) return graph::kNoGradient;
    return graph::Mul(HostInput(kBatchNumber, DType::kI64),
                      static_cast<double>(rows_of_all));
  }

  Output Reduce(Output gradient, CallSite site) {
    return AddAllReduce(gradient, ReduceOp::kMean, place(), site,
                        options_.wire);
  }

  // An input is placed on the first device, wherever it is used.
  Output HostInput(const char* name, DType dtype) {
    Output& input = host_inputs_[name];
    if (!input.is_valid()) input = graph().Input(name, dtype, Shape({}));
    return input;
  }

  const BuildOptions& options_;
  std::vector<Output> accumulations_;
  std::set<VariableId> sums_;
  std::map<std::string, Output> host_inputs_;
};

// Makes all replicas agree on the variables that each one updates on its own;
// returns the updates that do so.
std::vector<Output> AddVariableAgreement(ReplicaContext& replica,
                                         const std::vector<Output>& outputs,
                                         const std::vector<Output>& updates) {
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
          "reduce what it is updated with, or declare kFirst or kPerReplica",
          site.ToString(), spec.name, DTypeName(spec.dtype)));
    }
    const Output agreed = spec.agreement == graph::ReplicaAgreement::kMean
                              ? replica.AllReduce(newest, ReduceOp::kMean, site)
                              : replica.Broadcast(newest, /*source=*/0, site);
    added.push_back(graph::Assign(graph, id, agreed, site));
  }
  return added;
}

// The sums that one of several batches adds to, and nothing else.
void CheckAccumulates(const BatchReplica& replica,
                      const graph::Program& program) {
  if (replica.accumulations().empty()) {
    throw InvalidArgument(
        "accumulation_steps: the step function has no gradients to add up; "
        "hint: give them to MeanGradients() or WrapOptimizer()");
  }
  for (const graph::Node& node : program.graph->nodes()) {
    for (const VariableId variable : node.updates) {
      // declarations keep their numbers
      if (replica.sums().contains(variable)) continue;
      throw InvalidArgument(fmt::format(
          "{}: accumulation_steps: '{}' is updated on the way to a gradient or "
          "a value, which would happen for every batch; hint: take its value "
          "from before the update",
          node.site.ToString(), program.graph->variable(variable).name));
    }
  }
}

}  // namespace

ReplicaProgram BuildReplicaProgram(ReplicaPlace place,
                                   const std::vector<InputSpec>& specs,
                                   const StepFn& step_fn,
                                   const BuildOptions& options) {
  Graph graph(options.seed);
  BatchReplica replica(graph, place, options);
  const StepOutputs made = step_fn(replica, AddInputs(graph, specs));
  ReplicaProgram built{.value_names = ValueNames(made)};
  for (const VariableId sum : replica.sums()) {
    built.sums.insert(graph.variable(sum).name);
  }
  std::vector<Output> outputs;
  outputs.reserve(made.values.size());
  for (const auto& [name, output] : made.values) outputs.push_back(output);
  const bool is_earlier = options.role == BatchRole::kEarlier;
  std::vector<Output> updates =
      is_earlier ? replica.accumulations() : made.updates;
  for (const Output& update : AddVariableAgreement(replica, outputs, updates)) {
    updates.push_back(update);
  }
  // every replica drops the calls whose results nobody needs
  built.program = graph::ExtractProgram(graph, outputs, updates);
  if (is_earlier) CheckAccumulates(replica, built.program);
  return built;
}

BuiltReplica BuildReplica(ReplicaPlace place,
                          const std::vector<InputSpec>& specs,
                          const StepFn& step_fn, const BuildOptions& options) {
  ReplicaProgram made = BuildReplicaProgram(place, specs, step_fn, options);
  graph::Program program = std::move(made.program);
  BuiltReplica built{.value_names = std::move(made.value_names),
                     .sums = std::move(made.sums)};
  built.signature = SignatureOf(program);
  if (options.sharing.count > 1) {
    SharedProgram shared = ShareUpdates(program, options.sharing, place.count);
    program = std::move(shared.program);
    built.variables = std::move(shared.variables);
  }
  LoweredProgram lowered = LowerCollectives(program, options.lowering);
  AddCalls(lowered.calls, &built.signature);
  built.program =
      Partition(std::move(lowered.program), options.logical_devices);
  return built;
}

}  // namespace replicant::replicator
