#include "replicator/strategies/distribute.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <exception>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/graph/ops/shape_ops.h"
#include "engine/graph/ops/state.h"
#include "engine/graph/process_hooks.h"
#include "engine/runtime/plan_extension.h"
#include "replicator/calls/agreement.h"
#include "replicator/calls/collective_kernels.h"
#include "replicator/calls/collective_ops.h"
#include "replicator/calls/lowering.h"
#include "replicator/comm/collective_queue.h"
#include "replicator/comm/mpi_communicator.h"
#include "replicator/comm/tcp_communicator.h"
#include "replicator/strategies/processes.h"
#include "replicator/strategies/replica_ranks.h"

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

// Nothing for a process that is alone.
comm::LocalRanks FindRanks() {
  if (Variable(kNumProcesses).empty()) {
    if (comm::HasMpi() && comm::NumMpiProcesses() > 1) {
      return comm::MakeMpiRanks(/*count=*/1);
    }
    return {};
  }
  const int count = NumberIn(kNumProcesses, 1);
  if (count == 1) return {};
  return comm::MakeTcpRanks(/*count=*/1,
                            {.process = NumberIn(kProcess, 0),
                             .num_processes = count,
                             .rendezvous = Variable(kRendezvous),
                             .key = Variable(kRendezvousKey),
                             .description = "a distributed program"});
}

// By node: whether it is computed from this process's rows alone.
std::vector<bool> FindNodesOfRows(const Graph& graph) {
  std::vector<bool> of_rows;
  for (const Node& node : graph.nodes()) {
    bool is_of_rows =
        node.op == &graph::InputOp() && graph::InputPart::Of(node).count > 1;
    for (const graph::Endpoint& input : node.inputs) {
      is_of_rows |= of_rows[static_cast<size_t>(input.node)];
    }
    of_rows.push_back(is_of_rows && PrimitiveOf(node) == Primitive::kNone);
  }
  return of_rows;
}

class DistributedPlan;

class ProcessGroup : public Distribution, public runtime::PlanExtension {
 public:
  ProcessGroup(comm::LocalRanks ranks, int64_t batch_size)
      : between_(std::move(ranks.processes)),
        communicator_(std::move(ranks.ranks[0])),
        queue_(communicator_.get()),
        processes_(between_.get()),
        place_{.id = communicator_->rank(), .count = communicator_->size()},
        rows_(batch_size / place_.count) {
    if (batch_size < 1 || batch_size % place_.count != 0) {
      throw ConfigError(fmt::format(
          "Distribute: a batch of {} rows cannot be divided evenly among {} "
          "processes",
          batch_size, place_.count));
    }
    hooks_.part_of_input = [this, batch_size](const Shape& shape) {
      const bool is_batch = shape.rank() > 0 && shape[0] == batch_size;
      return is_batch
                 ? graph::InputPart{.index = place_.id, .count = place_.count}
                 : graph::InputPart{};
    };
    hooks_.mean_gradients = [this](const std::vector<Output>& gradients) {
      std::vector<Output> means;
      means.reserve(gradients.size());
      for (const Output& gradient : gradients) {
        means.push_back(AddAllReduce(gradient, ReduceOp::kMean, place_,
                                     gradient.producer().site));
      }
      return means;
    };
    graph::SetProcessHooks(&hooks_);
    runtime::SetPlanExtension(this);
  }
  ~ProcessGroup() override {
    runtime::SetPlanExtension(nullptr);
    graph::SetProcessHooks(nullptr);
    // the others must not wait for one that ends with an error
    if (std::uncaught_exceptions() > 0) {
      communicator_->Abort("a process ended with an error");
    }
  }

  int process() const override { return place_.id; }
  int num_processes() const override { return place_.count; }

  std::unique_ptr<Part> Extend(graph::Program* program,
                               bool is_host_memory) override;

  // --- for its plans ---

  comm::CollectiveQueue& queue() { return queue_; }
  // Gives all processes the first one's variables, once for each variable.
  // Throws InvalidArgument in all of them if they have different ones.
  void Spread(runtime::VariableStore& variables);

 private:
  void AgreeOnUpdates(graph::Program* program) const;
  void MakeOutputsWhole(graph::Program* program) const;

  const std::unique_ptr<comm::Communicator> between_;
  const std::unique_ptr<comm::Communicator> communicator_;
  comm::CollectiveQueue queue_;
  Processes processes_;
  const ReplicaPlace place_;
  const int64_t rows_;
  graph::ProcessHooks hooks_;
  // The memory of variables that are equal everywhere; by owner, as another
  // variable may get the address once it is freed.
  std::set<std::weak_ptr<kernels::Buffer>, std::owner_less<>> spread_;
};

class DistributedPlan : public runtime::PlanExtension::Part {
 public:
  DistributedPlan(ProcessGroup* group, bool is_host_memory)
      : group_(*group), kernels_(&group->queue(), is_host_memory) {}

  std::unique_ptr<kernels::Kernel> MakeKernel(const Graph& graph,
                                              const Node& node) override {
    return kernels_.Make(graph, node);
  }
  void BeforeRun(runtime::VariableStore& variables) override {
    group_.Spread(variables);
  }

 private:
  ProcessGroup& group_;
  CollectiveKernels kernels_;
};

std::unique_ptr<runtime::PlanExtension::Part> ProcessGroup::Extend(
    graph::Program* program, bool is_host_memory) {
  bool is_of_rows = false;
  for (const Node& node : program->graph->nodes()) {
    is_of_rows |=
        node.op == &graph::InputOp() && graph::InputPart::Of(node).count > 1;
    is_of_rows |= PrimitiveOf(node) != Primitive::kNone;
  }
  if (!is_of_rows) return nullptr;
  AgreeOnUpdates(program);
  MakeOutputsWhole(program);
  *program = graph::ExtractProgram(*program->graph, program->outputs,
                                   program->updates);
  Signature signature = SignatureOf(*program);
  LoweredProgram lowered = LowerCollectives(*program, {});
  AddCalls(lowered.calls, &signature);
  // a difference is an error now, and no call that waits for ever
  std::vector<Signature> all;
  for (const std::string& text : processes_.Gather(Encode({signature}))) {
    all.push_back(Decode(text).at(0));
  }
  CheckAgreement(all);
  *program = std::move(lowered.program);
  return std::make_unique<DistributedPlan>(this, is_host_memory);
}

void ProcessGroup::AgreeOnUpdates(graph::Program* program) const {
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
        is_mean ? AddAllReduce(newest, ReduceOp::kMean, place_, site)
                : AddBroadcast(newest, /*source=*/0, place_, site);
    program->updates.push_back(graph::Assign(graph, id, agreed, site));
  }
}

void ProcessGroup::MakeOutputsWhole(graph::Program* program) const {
  const std::vector<bool> of_rows = FindNodesOfRows(*program->graph);
  for (Output& output : program->outputs) {
    if (!of_rows[static_cast<size_t>(output.node)]) continue;
    const CallSite site = output.producer().site;
    const Shape& shape = output.shape();
    if (shape.rank() == 0 && graph::IsFloating(output.dtype())) {
      output = AddAllReduce(output, ReduceOp::kMean, place_, site);
    } else if (shape.rank() > 0 && shape[0] == rows_) {
      const Shape whole = shape.WithLeading(rows_ * place_.count);
      const Output parts = AddAllGather(output, place_, site);
      output = graph::Reshape(parts, {whole.dims().begin(), whole.dims().end()},
                              site);
    } else {
      throw InvalidArgument(fmt::format(
          "{}: output {} '{}' is made of this process's {} rows; allowed: a "
          "floating scalar, which becomes the mean of all processes', or a "
          "leading dimension of rows",
          site.ToString(), output.type().ToString(), output.producer().name,
          rows_));
    }
  }
}

void ProcessGroup::Spread(runtime::VariableStore& variables) {
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

// A process that runs the program alone.
class Alone : public Distribution {
 public:
  int process() const override { return 0; }
  int num_processes() const override { return 1; }
};

}  // namespace

std::unique_ptr<Distribution> Distribute(int64_t batch_size) {
  comm::LocalRanks ranks = FindRanks();
  if (ranks.ranks.empty()) return std::make_unique<Alone>();
  return std::make_unique<ProcessGroup>(std::move(ranks), batch_size);
}

}  // namespace replicant::replicator
