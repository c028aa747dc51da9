#include "replicator/strategies/distribute.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/graph/ops/shape_ops.h"
#include "engine/graph/ops/state.h"
#include "replicator/calls/collective_kernels.h"
#include "replicator/calls/collective_ops.h"
#include "replicator/calls/lowering.h"
#include "replicator/comm/mpi_communicator.h"
#include "replicator/comm/tcp_communicator.h"
#include "replicator/comm/thread_communicator.h"
#include "replicator/steps/replica_ranks.h"

namespace replicant::replicator {
namespace {

using graph::Node;

constexpr const char* kProcess = "REPLICANT_PROCESS";
constexpr const char* kNumProcesses = "REPLICANT_NUM_PROCESSES";
constexpr const char* kRendezvous = "REPLICANT_RENDEZVOUS";

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

int NumberIn(const char* name, int least) {
  const std::string text = Variable(name);
  int value = -1;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value < least) {
    throw ConfigError(fmt::format("{}='{}': want a whole number of {} or more",
                                  name, text, least));
  }
  return value;
}

comm::LocalRanks Alone() {
  return {.processes = nullptr, .ranks = comm::MakeThreadCommunicators(1)};
}

comm::LocalRanks FindRanks() {
  if (Variable(kNumProcesses).empty()) {
    if (comm::HasMpi() && comm::NumMpiProcesses() > 1) {
      return comm::MakeMpiRanks(/*count=*/1);
    }
    return Alone();
  }
  const int count = NumberIn(kNumProcesses, 1);
  if (count == 1) return Alone();
  return comm::MakeTcpRanks(/*count=*/1,
                            {.process = NumberIn(kProcess, 0),
                             .num_processes = count,
                             .rendezvous = Variable(kRendezvous),
                             .key = Variable(kRendezvousKey),
                             .description = "a distributed program"});
}

}  // namespace

Distribution::Distribution(comm::LocalRanks ranks, int64_t batch_size)
    : between_(std::move(ranks.processes)),
      communicator_(std::move(ranks.ranks[0])),
      queue_(communicator_.get()),
      processes_(between_.get()),
      rank_{.id = communicator_->rank(), .count = communicator_->size()},
      batch_size_(batch_size) {
  if (batch_size < 1 || batch_size % rank_.count != 0) {
    throw ConfigError(fmt::format(
        "Distribute: a batch of {} rows cannot be divided evenly among {} "
        "processes",
        batch_size, rank_.count));
  }
}

Distribution::~Distribution() {
  // the others must not wait for one that ends with an error
  if (std::uncaught_exceptions() > 0) {
    communicator_->Abort("a process ended with an error");
  }
}

void Distribution::CheckSame(const Signature& signature) {
  std::vector<Signature> all;
  for (const std::string& text : processes_.Gather(Encode({signature}))) {
    all.push_back(Decode(text).at(0));
  }
  CheckAgreement(all);
}

void Distribution::Spread(runtime::VariableStore& variables) {
  if (num_processes() == 1) return;
  std::vector<std::string> names;
  std::string description;
  for (const auto& [name, variable] : variables.variables()) {
    if (spread_.contains(variable.buffer)) continue;
    names.push_back(name);
    description += fmt::format("{}{} {}{}", description.empty() ? "" : ", ",
                               name, DTypeName(variable.spec.dtype),
                               variable.spec.shape.ToString());
  }
  if (names.empty()) return;
  std::erase_if(spread_, [](const auto& memory) { return memory.expired(); });
  const std::vector<std::string> all = processes_.Gather(description);
  for (size_t i = 1; i < all.size(); ++i) {
    if (all[i] == all[0]) continue;
    throw InvalidArgument(fmt::format(
        "Distribute: processes 0 and {} begin with different variables: {} and "
        "{}; hint: the store of a plan holds the same ones in every process",
        i, all[0], all[i]));
  }
  for (const std::string& name : names) {
    HostTensor value = variables.Get(name);
    processes_.Broadcast(value.mutable_view());
    variables.Set(name, value.view());
    spread_.insert(variables.at(name).buffer);
  }
}

std::unique_ptr<Distribution> Distribute(int64_t batch_size) {
  return std::make_unique<Distribution>(FindRanks(), batch_size);
}

MutableTensorView DistributedPlan::input(std::string_view name) {
  const auto whole = batch_.find(name);
  return whole == batch_.end() ? plan_->input(name)
                               : whole->second.mutable_view();
}

void DistributedPlan::Run() {
  if (processes_ != nullptr) processes_->Spread(*variables_);
  for (const auto& [name, whole] : batch_) {
    const MutableTensorView rows = plan_->input(name);
    const size_t size = rows.size_bytes();
    if (size == 0) continue;
    std::memcpy(rows.data(),
                whole.bytes().data() + static_cast<size_t>(process_) * size,
                size);
  }
  plan_->Run();
}

Output DistributedReplica::Input(const std::string& name, DType dtype,
                                 const Shape& shape, CallSite site) {
  if (shape.rank() == 0 || shape[0] != processes_.batch_size()) {
    throw ShapeError(fmt::format(
        "{}: Input: '{}' is {}; want {} rows, the batch size", site.ToString(),
        name, shape.ToString(), processes_.batch_size()));
  }
  const Output rows =
      graph().Input(name, dtype, shape.WithLeading(processes_.rows()), site);
  inputs_of_rows_.insert(rows.producer().name);
  return rows;
}

std::unique_ptr<DistributedPlan> DistributedReplica::Compile(
    const runtime::PlanSpec& spec, runtime::VariableStore& variables,
    const runtime::CompileOptions& options) {
  graph::Program program =
      graph::ExtractProgram(graph(), spec.outputs, spec.updates);
  std::unique_ptr<DistributedPlan> plan(new DistributedPlan);
  runtime::CompileOptions with_calls = options;
  CollectiveKernels kernels(processes_.queue(),
                            variables.backend().is_host_memory());
  if (HasCalls(*program.graph)) {
    AgreeOnUpdates(&program);
    MakeOutputsWhole(&program);
    program =
        graph::ExtractProgram(*program.graph, program.outputs, program.updates);
    Signature signature = SignatureOf(program);
    LoweredProgram lowered =
        LowerCollectives(program, {.in_program_order = divides_work()});
    AddCalls(lowered, &signature);
    // a difference is an error now, and no call that waits for ever
    processes_.CheckSame(signature);
    program = std::move(lowered.program);
    with_calls.make_kernel = [&](const Graph& graph, const Node& node) {
      return kernels.Make(graph, node);
    };
    plan->processes_ = &processes_;
  }
  plan->variables_ = &variables;
  plan->process_ = processes_.process();
  plan->plan_ = std::make_unique<runtime::Executor>(
      *program.graph,
      runtime::PlanSpec{.outputs = program.outputs, .updates = program.updates},
      variables, with_calls);
  for (const std::string& name : plan->plan_->input_names()) {
    if (!inputs_of_rows_.contains(name)) continue;
    const MutableTensorView rows = plan->plan_->input(name);
    plan->batch_.emplace(
        name, HostTensor(rows.dtype(),
                         rows.shape().WithLeading(processes_.batch_size())));
  }
  return plan;
}

std::vector<bool> DistributedReplica::FindNodesOfRows(
    const Graph& graph) const {
  std::vector<bool> of_rows;
  for (const Node& node : graph.nodes()) {
    bool is_of_rows =
        node.op == &graph::InputOp() && inputs_of_rows_.contains(node.name);
    for (const graph::Endpoint& input : node.inputs) {
      is_of_rows |= of_rows[static_cast<size_t>(input.node)];
    }
    of_rows.push_back(is_of_rows && PrimitiveOf(node) == Primitive::kNone);
  }
  return of_rows;
}

bool DistributedReplica::HasCalls(const Graph& graph) const {
  return std::ranges::any_of(graph.nodes(), [&](const Node& node) {
    return PrimitiveOf(node) != Primitive::kNone ||
           (node.op == &graph::InputOp() &&
            inputs_of_rows_.contains(node.name));
  });
}

void DistributedReplica::AgreeOnUpdates(graph::Program* program) const {
  Graph& graph = *program->graph;
  const std::vector<bool> of_rows = FindNodesOfRows(graph);
  std::vector<std::pair<VariableId, CallSite>> updated;
  for (const Node& node : graph.nodes()) {
    if (!of_rows[static_cast<size_t>(node.id)]) continue;
    for (const VariableId id : node.updates)
      updated.emplace_back(id, node.site);
  }
  for (const auto& [id, site] : updated) {
    // copied: adding nodes may move it
    const graph::VariableSpec spec = graph.variable(id);
    if (spec.agreement == graph::ReplicaAgreement::kPerReplica &&
        !spec.is_trainable) {
      continue;
    }
    if (spec.is_trainable) {
      throw InvalidArgument(fmt::format(
          "{}: '{}' is trained, but every process would update it differently; "
          "hint: optimizers of engine/nn take the mean of all processes' "
          "gradients",
          site.ToString(), spec.name));
    }
    const Output newest = graph.Read(id, site);
    const bool is_mean = spec.agreement == graph::ReplicaAgreement::kMean &&
                         graph::IsFloating(spec.dtype);
    const Output agreed =
        is_mean ? AddAllReduce(newest, ReduceOp::kMean, rank(), site)
                : AddBroadcast(newest, /*source=*/0, rank(), site);
    program->updates.push_back(graph::Assign(graph, id, agreed, site));
  }
}

void DistributedReplica::MakeOutputsWhole(graph::Program* program) const {
  const std::vector<bool> of_rows = FindNodesOfRows(*program->graph);
  for (Output& output : program->outputs) {
    if (!of_rows[static_cast<size_t>(output.node)]) continue;
    const CallSite site = output.producer().site;
    const Shape& shape = output.shape();
    if (shape.rank() == 0 && graph::IsFloating(output.dtype())) {
      output = AddAllReduce(output, ReduceOp::kMean, rank(), site);
    } else if (shape.rank() > 0 && shape[0] == processes_.rows()) {
      const Shape whole = shape.WithLeading(processes_.batch_size());
      const Output parts = AddAllGather(output, rank(), site);
      output = graph::Reshape(parts, {whole.dims().begin(), whole.dims().end()},
                              site);
    } else {
      throw InvalidArgument(fmt::format(
          "{}: output {} '{}' is made of this process's {} rows; allowed: a "
          "floating scalar, which becomes the mean of all processes', or a "
          "leading dimension of rows",
          site.ToString(), output.type().ToString(), output.producer().name,
          processes_.rows()));
    }
  }
}

}  // namespace replicant::replicator
