#include "replicator/steps/shared_updates.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "engine/graph/ops/optimizer.h"
#include "engine/graph/passes/rewriter.h"
#include "replicator/calls/agreement.h"

namespace replicant::replicator {
namespace {

using graph::Endpoint;
using graph::Node;
using graph::Program;
using graph::Rewriter;
using kernels::Kernel;
using kernels::KernelBindings;

// Replaces updates by the replica's parts of them.
class UpdateSharer {
 public:
  UpdateSharer(const Program& program, ReplicaRank rank, int num_replicas)
      : program_(program),
        graph_(*program.graph),
        rank_(rank),
        has_all_replicas_(rank.count == num_replicas),
        uses_(program),
        rewriter_(graph_) {
    FindVariables();
  }

  SharedProgram Run() {
    for (const Node& node : graph_.nodes()) {
      if (!node.updates.empty() && shared_.contains(node.updates[0])) {
        AddPart(node);
      } else {
        rewriter_.Copy(node);
      }
    }
    const Program rewritten = rewriter_.Finish(program_);
    // remove placeholders that only optimizers needed
    return {graph::ExtractProgram(*rewritten.graph, rewritten.outputs,
                                  rewritten.updates),
            std::move(variables_)};
  }

 private:
  // Adds all variables that are updated together with these.
  void Spread(std::set<VariableId>* variables) const {
    size_t old_size = 0;
    while (old_size != variables->size()) {
      old_size = variables->size();
      for (const Node& node : graph_.nodes()) {
        if (std::ranges::any_of(node.updates, [&](VariableId variable) {
              return variables->contains(variable);
            })) {
          variables->insert(node.updates.begin(), node.updates.end());
        }
      }
    }
  }

  void FindVariables() {
    const std::vector<bool> is_local = FindLocalNodes(graph_);
    std::set<VariableId> own;
    for (const Node& node : graph_.nodes()) {
      if (!is_local[static_cast<size_t>(node.id)]) continue;
      own.insert(node.updates.begin(), node.updates.end());
    }
    Spread(&own);
    const auto count = static_cast<VariableId>(graph_.variables().size());
    for (VariableId id = 0; id < count; ++id) {
      if (graph_.variable(id).is_trainable) shared_.insert(id);
    }
    Spread(&shared_);
    std::erase_if(shared_,
                  [&](VariableId variable) { return own.contains(variable); });
    for (const VariableId variable : shared_) {
      variables_.shared.insert(graph_.variable(variable).name);
    }
    for (const Node& node : graph_.nodes()) {
      for (const VariableId variable : node.updates) {
        if (shared_.contains(variable)) continue;
        variables_.own.insert(graph_.variable(variable).name);
      }
    }
  }

  // The replica's own gradient behind a mean or sum that only this update uses;
  // nothing if the update uses another value.
  std::optional<Endpoint> OwnGradient(Endpoint gradient) const {
    const Node& node = graph_.node(gradient.node);
    if (PrimitiveOf(node) != Primitive::kAllReduce || uses_.of(gradient) > 1) {
      return std::nullopt;
    }
    const DType dtype = node.output_type().dtype;
    const ReduceOp op = ReduceOpOf(node);
    const bool is_plain =
        (op == ReduceOp::kMean || op == ReduceOp::kSum) &&
        FormatOf(graph_, node) == GradientFormat{.dtype = dtype} &&
        (dtype == DType::kF32 || dtype == DType::kF64);
    // memory that an update writes must not be read meanwhile
    const Node& producer = graph_.node(node.inputs[0].node);
    const bool is_state =
        producer.op == &graph::VariableOp() || !producer.updates.empty();
    if (!is_plain || is_state) return std::nullopt;
    return node.inputs[0];
  }

  void AddPart(const Node& node) {
    graph::UpdatePart part{.index = rank_.id, .count = rank_.count};
    std::vector<Output> inputs = rewriter_.MappedInputs(node);
    const auto first = graph::FirstGradient(node);
    if (first && has_all_replicas_) {
      TakeOwnGradients(node, *first, &inputs, &part);
    }
    Graph::NodeSpec spec{.op = node.op,
                         .inputs = std::move(inputs),
                         .attributes = node.attributes,
                         .updates = node.updates,
                         .name = node.name};
    graph::SetUpdatePart(part, &spec.attributes);
    rewriter_.Replace(node, std::move(spec));
  }

  // If all gradients qualify, passes the update this replica's own gradients
  // once for each replica: UpdateKernel replaces the copies by the other
  // replicas'.
  void TakeOwnGradients(const Node& node, size_t first,
                        std::vector<Output>* inputs,
                        graph::UpdatePart* part) const {
    const auto count = static_cast<size_t>(node.attributes.Int("count"));
    std::vector<Output> gradients;
    bool is_mean = false;
    for (size_t i = 0; i < count; ++i) {
      const Endpoint gradient = node.inputs[first + i];
      const std::optional<Endpoint> own = OwnGradient(gradient);
      if (!own) return;
      const bool is_mean_here =
          ReduceOpOf(graph_.node(gradient.node)) == ReduceOp::kMean;
      if (i > 0 && is_mean_here != is_mean) return;
      is_mean = is_mean_here;
      gradients.push_back(rewriter_.Mapped(*own));
    }
    const auto at = inputs->begin() + static_cast<int64_t>(first);
    std::ranges::copy(gradients, at);
    for (int i = 1; i < rank_.count; ++i) {
      inputs->insert(inputs->begin() + static_cast<int64_t>(first),
                     gradients.begin(), gradients.end());
    }
    part->num_gradients = rank_.count;
    if (is_mean) part->gradient_factor = 1.0 / rank_.count;
  }

  const Program& program_;
  const Graph& graph_;
  const ReplicaRank rank_;
  const bool has_all_replicas_;
  const graph::UseCounts uses_;
  Rewriter rewriter_;
  std::set<VariableId> shared_;
  SharedVariables variables_;
};

// The inputs of a node that are gradients, of one replica.
struct GradientInputs {
  size_t first = 0;
  size_t count = 0;  //  gradients of every replica
};

GradientInputs GradientInputsOf(const Node& node) {
  if (graph::UpdatePartOf(node.attributes).num_gradients == 1) return {};
  return {.first = *graph::FirstGradient(node),
          .count = static_cast<size_t>(node.attributes.Int("count"))};
}

}  // namespace

// A replica's part of an update, between two barriers.
class SharedUpdates::UpdateKernel : public Kernel {
 public:
  // `inner` is null if this replica has no part of it.
  UpdateKernel(Device* device, size_t replica, WaitMeter meter,
               std::unique_ptr<Kernel> inner, const Node& node)
      : device_(*device),
        replica_(replica),
        meter_(std::move(meter)),
        inner_(std::move(inner)),
        name_(fmt::format("{} '{}'", node.op->name, node.name)),
        gradients_(GradientInputsOf(node)) {}

  size_t scratch_size_bytes() const override {
    return inner_ ? inner_->scratch_size_bytes() : 0;
  }

  void Bind(const KernelBindings& bindings) override {
    bindings_ = bindings;
    device_.kernels[replica_].push_back(this);
  }

  void Launch(kernels::Stream& stream) override {
    stream.Synchronize();
    meter_.Measure([&] { Barrier(); });
    if (inner_) inner_->Launch(stream);
    stream.Synchronize();
    Barrier();
  }

  const std::string& name() const { return name_; }

  // `replicas`: this update's kernel of each replica.
  void Connect(const std::vector<const UpdateKernel*>& replicas) {
    if (!inner_) return;
    KernelBindings bindings = bindings_;
    auto to = bindings.inputs.begin() + static_cast<int64_t>(gradients_.first);
    for (const UpdateKernel* replica : replicas) {
      // the replica's own gradients come first in its bindings
      const auto from = replica->bindings_.inputs.begin() +
                        static_cast<int64_t>(gradients_.first);
      to = std::copy_n(from, gradients_.count, to);
    }
    inner_->Bind(bindings);
  }

 private:
  void Barrier() { device_.replicas->Barrier(static_cast<int>(replica_)); }

  Device& device_;
  const size_t replica_;
  WaitMeter meter_;
  const std::unique_ptr<Kernel> inner_;
  const std::string name_;
  const GradientInputs gradients_;
  KernelBindings bindings_;
};

SharedProgram ShareUpdates(const Program& program, ReplicaRank rank,
                           int num_replicas) {
  return UpdateSharer(program, rank, num_replicas).Run();
}

SharedUpdates::SharedUpdates(size_t num_replicas, size_t num_devices,
                             const comm::CommunicatorOptions& options) {
  for (size_t i = 0; i < num_devices; ++i) {
    devices_.push_back(
        {.replicas = std::make_unique<comm::ThreadGroup>(
             static_cast<int>(num_replicas), options,
             comm::ThreadGroup::Naming{.member = "rank",
                                       .transport = "threads"}),
         .kernels = std::vector<std::vector<UpdateKernel*>>(num_replicas)});
  }
}

std::unique_ptr<Kernel> SharedUpdates::MakeKernel(
    size_t replica, size_t device, kernels::Backend& backend,
    const graph::Graph& graph, const Node& node,
    const std::shared_ptr<CallWaits>& waits) {
  const graph::UpdatePart part = graph::UpdatePartOf(node.attributes);
  if (node.updates.empty() || part.count == 1) return nullptr;
  // the first replica makes an update that cannot be divided
  const bool is_idle = !graph::IsGroupedUpdate(node) && part.index != 0;
  return std::make_unique<UpdateKernel>(
      &devices_[device], replica, WaitMeter(waits, /*is_bucket=*/true),
      is_idle ? nullptr : backend.CompileKernel(graph, node), node);
}

void SharedUpdates::Connect() {
  for (const Device& device : devices_) {
    const std::vector<UpdateKernel*>& first = device.kernels[0];
    for (const std::vector<UpdateKernel*>& kernels : device.kernels) {
      if (std::ranges::equal(kernels, first, {}, &UpdateKernel::name,
                             &UpdateKernel::name)) {
        continue;
      }
      throw InvalidArgument(
          "replicas update their variables in different orders; hint: every "
          "replica builds the same step");
    }
    for (size_t i = 0; i < first.size(); ++i) {
      std::vector<const UpdateKernel*> same;
      same.reserve(device.kernels.size());
      for (const auto& kernels : device.kernels) same.push_back(kernels[i]);
      for (const auto& kernels : device.kernels) kernels[i]->Connect(same);
    }
  }
}

void SharedUpdates::Abort(const std::string& reason) {
  for (const Device& device : devices_) device.replicas->Abort(reason);
}

}  // namespace replicant::replicator
