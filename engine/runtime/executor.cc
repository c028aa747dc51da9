#include "engine/runtime/executor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "base/blocked_signals.h"
#include "base/check.h"
#include "engine/graph/ops/optimizer.h"
#include "engine/graph/ops/shape_ops.h"
#include "engine/graph/print.h"
#include "engine/runtime/device_boundary.h"
#include "engine/runtime/launch_sequence.h"
#include "engine/runtime/numeric_check.h"
#include "engine/runtime/placement.h"
#include "engine/runtime/schedule.h"

// How a plan is made.
//
// 1. ExtractProgram() copies the nodes that outputs and updates need. The
//    passes simplify and fuse them. ScheduleNodes() puts them in a sequence in
//    which every reader of a variable runs before the node that overwrites it.
// 2. Every node but inputs, constants and variables becomes a kernel. The
//    backend learns which inputs stay constant between runs.
// 3. Placement gives every tensor an address (engine/runtime/placement.h).
// 4. Kernels are bound to these addresses once. A run copies the inputs to the
//    device (engine/runtime/device_boundary.h), launches the kernels in
//    sequence (engine/runtime/launch_sequence.h) and copies the fetched outputs
//    back. Where the host can reach the backend's memory, the caller's views
//    are that memory and nothing is copied. A resident input
//    (engine/runtime/resident_input.h) is changed by its owner, in the order of
//    the plan's stream.
namespace replicant::runtime {
namespace {

using graph::Endpoint;
using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Output;
using kernels::Backend;
using kernels::Buffer;
using kernels::Kernel;

bool IsLeaf(const Node& node) {
  return node.op == &graph::InputOp() || node.op == &graph::ConstantOp() ||
         node.op == &graph::VariableOp();
}

// A fetched leaf or variable version is copied, because the plan does not own
// its memory and it may have changed by the end of the run.
void CopyFetchedState(graph::Program& program) {
  for (Output& output : program.outputs) {
    const Node& node = output.producer();
    const bool is_version =
        output.index < static_cast<int32_t>(node.updates.size());
    if (IsLeaf(node) || is_version) {
      output = graph::Identity(output, node.site);
    }
  }
}

graph::Program MakeProgram(const Graph& graph, const PlanSpec& spec,
                           const Backend& backend,
                           const CompileOptions& options) {
  graph::PassOptions passes = options.passes;
  if (options.check_finite) {
    for (const graph::Pass& pass : graph::AllPasses()) {
      if (pass.name != "prune") passes.off.emplace_back(pass.name);
    }
  }
  graph::Program program =
      graph::ExtractProgram(graph, spec.outputs, spec.updates);
  program = graph::RunPasses(std::move(program), backend.target(), passes);
  CopyFetchedState(program);
  return program;
}

}  // namespace

class Executor::Impl {
 public:
  Impl(const Graph& graph, const PlanSpec& spec, VariableStore& store,
       const CompileOptions& options)
      : store_(store),
        backend_(store.backend()),
        check_finite_(options.check_finite),
        has_profile_(options.has_profile),
        residents_(options.residents),
        program_(MakeProgram(graph, spec, backend_, options)),
        stream_(backend_.CreateStream()),
        sequence_(&backend_) {
    report_.num_nodes = static_cast<int>(graph.nodes().size());
    TakeResidents();
    store.Declare(*program_.graph);
    const std::vector<NodeId> order = ScheduleNodes(*program_.graph);
    FindWrittenVariables();
    CompileKernels(order, options);
    const Placement placement(program_, order, kernels_,
                              [this](const std::string& input) {
                                return residents_.contains(input);
                              });
    DescribeMemory(*program_.graph, order, placement, &report_);
    if (!backend_.is_host_memory()) {
      // their landing area
      report_.boundary_size_bytes += placement.input_size_bytes();
    }
    Allocate(placement);
    BindKernels(order, placement);
    BindBoundary(placement);
    if (device_ != nullptr) {
      sequence_.AddCopies(
          [this](kernels::Stream& stream) { device_->CopyOutputs(stream); });
    }
  }
  ~Impl() {
    if (!is_running_) return;
    try {
      stream_->Synchronize();
    } catch (const DeviceError&) {
      // the caller did not ask for the results
    }
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  MutableTensorView input(std::string_view name) {
    const auto found = inputs_.find(name);
    if (found == inputs_.end()) {
      throw InvalidArgument(fmt::format("Executor: no input '{}'; inputs: {}",
                                        name, fmt::join(input_names(), ", ")));
    }
    return found->second;
  }

  std::vector<std::string> input_names() const {
    std::vector<std::string> names;
    for (const auto& [name, view] : inputs_) names.push_back(name);
    return names;
  }

  TensorView output(size_t index) const {
    REPLICANT_CHECK_LT(index, outputs_.size());
    return outputs_[index];
  }

  size_t num_outputs() const { return outputs_.size(); }

  void SendInputs() {
    if (are_inputs_sent_) return;
    if (device_ != nullptr) device_->Send();
    are_inputs_sent_ = true;
  }

  void RecallInputs() {
    if (device_ != nullptr) device_->WaitUntilSent();
    are_inputs_sent_ = false;
  }

  void Start() {
    const BlockedSignals blocked;
    SendInputs();
    are_inputs_sent_ = false;
    is_running_ = true;
    if (device_ != nullptr) device_->Receive(*stream_);
    for (const auto& [name, resident] : residents_) resident->Update(*stream_);
    for (ConstantInput& constant : constant_inputs_) {
      const uint64_t version = constant.variable->version.value();
      if (version == constant.version) continue;
      constant.version = version;
      constant.kernel->InputChanged(constant.input);
    }
    // counted before the launches: a failed run may have written as well
    for (VariableStore::Variable* variable : written_) variable->version.Add();
    if (check_finite_ || has_profile_) {
      LaunchOneByOne();
      if (device_ != nullptr) device_->CopyOutputs(*stream_);
    } else {
      sequence_.Launch(*stream_);
    }
    if (device_ != nullptr) device_->WaitUntilSent();
  }

  void Wait() {
    stream_->Synchronize();
    is_running_ = false;
  }

  bool can_fill_ahead() const { return device_ != nullptr; }

  const PlanReport& report() const { return report_; }
  std::string ToText() const { return graph::PrintText(*program_.graph); }

  std::vector<KernelProfile> profile() const {
    std::vector<KernelProfile> kernels;
    for (size_t i = 0; i < launch_ms_.size(); ++i) {
      const Node& node = program_.graph->node(launched_nodes_[i]);
      kernels.push_back({.op = std::string(node.op->name),
                         .name = node.name,
                         .mean_ms = launch_ms_[i] / num_profiled_runs_});
    }
    std::ranges::stable_sort(kernels, std::ranges::greater(),
                             &KernelProfile::mean_ms);
    return kernels;
  }

 private:
  // An input that is_constant_between_runs, with the version of its variable
  // that the kernel knows.
  struct ConstantInput {
    Kernel* kernel;
    int input;
    const VariableStore::Variable* variable;
    uint64_t version;
  };

  // Launches the kernels for debug mode or a profile.
  void LaunchOneByOne() {
    if (check_finite_) {
      CheckSourcesFinite();
      for (size_t i = 0; i < launches_.size(); ++i) {
        launches_[i]->Launch(*stream_);
        CheckFinite(launched_nodes_[i]);
      }
      return;
    }
    using Clock = std::chrono::steady_clock;
    launch_ms_.resize(launches_.size(), 0.0);
    for (size_t i = 0; i < launches_.size(); ++i) {
      const auto start = Clock::now();
      launches_[i]->Launch(*stream_);
      stream_->Synchronize();
      launch_ms_[i] +=
          std::chrono::duration<double, std::milli>(Clock::now() - start)
              .count();
    }
    ++num_profiled_runs_;
  }

  void TakeResidents() {
    for (const Node& node : program_.graph->nodes()) {
      const auto found = residents_.find(node.name);
      if (node.op != &graph::InputOp() || found == residents_.end()) continue;
      const graph::TensorType& type = found->second->type();
      if (type == node.output_type()) {
        report_.resident_size_bytes += type.SizeBytes();
        continue;
      }
      throw InvalidArgument(
          fmt::format("{}: input '{}' is {}, but what is resident for it is {}",
                      node.site.ToString(), node.name,
                      node.output_type().ToString(), type.ToString()));
    }
  }

  void CompileKernels(const std::vector<NodeId>& order,
                      const CompileOptions& options) {
    const Graph& graph = *program_.graph;
    for (const NodeId id : order) {
      std::unique_ptr<Kernel> kernel;
      if (options.make_kernel) {
        kernel = options.make_kernel(graph, graph.node(id));
      }
      if (kernel != nullptr) kernels_.emplace(id, std::move(kernel));
    }
    // all nodes are checked before any is compiled, which may take long
    for (const NodeId id : order) {
      const Node& node = graph.node(id);
      if (IsLeaf(node) || kernels_.contains(id)) continue;
      const std::string why = backend_.target().WhyUnsupported(graph, node);
      if (!why.empty()) {
        throw DeviceError(fmt::format("{} cannot run {} '{}' ({}): {}",
                                      backend_.device(), node.op->name,
                                      node.name, node.site.ToString(), why));
      }
    }
    for (const NodeId id : order) {
      const Node& node = graph.node(id);
      if (IsLeaf(node) || kernels_.contains(id)) continue;
      const std::vector<kernels::InputTraits> traits =
          TraitsOfInputs(node, options.replica_group);
      auto kernel = backend_.CompileKernel(graph, node, traits);
      NoteConstantInputs(node, kernel.get(), traits);
      kernels_.emplace(id, std::move(kernel));
    }
    backend_.PlanCompiled();
    for (const auto& [id, kernel] : kernels_) {
      report_.scratch_size_bytes =
          std::max(report_.scratch_size_bytes, kernel->scratch_size_bytes());
    }
    report_.num_kernels = static_cast<int>(kernels_.size());
  }

  // Finds the variables that the plan writes, and those among them that it
  // writes together with the plans of other replicas.
  void FindWrittenVariables() {
    const Graph& graph = *program_.graph;
    for (const Node& node : graph.nodes()) {
      for (const graph::VariableId id : node.updates) {
        VariableStore::Variable* variable = &store_.at(graph.variable(id).name);
        written_.insert(variable);
        if (graph::UpdatePartOf(node.attributes).count > 1) {
          written_together_.insert(variable);
        }
      }
    }
  }

  std::vector<kernels::InputTraits> TraitsOfInputs(
      const Node& node, kernels::ReplicaGroup* group) {
    std::vector<kernels::InputTraits> traits(node.inputs.size());
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Node& source = program_.graph->node(node.inputs[i].node);
      if (source.op == &graph::ConstantOp()) {
        traits[i].is_constant_between_runs = true;
      } else if (source.op == &graph::VariableOp()) {
        VariableStore::Variable* variable = &store_.at(source.name);
        traits[i].is_constant_between_runs = !written_.contains(variable);
        if (group != nullptr && written_together_.contains(variable)) {
          traits[i].group = group;
          traits[i].name_in_group = fmt::format("{} {}", node.id, source.name);
        }
      }
    }
    return traits;
  }

  // Notes the inputs whose variables may change between runs, so that Run() can
  // tell their kernels.
  void NoteConstantInputs(const Node& node, Kernel* kernel,
                          const std::vector<kernels::InputTraits>& traits) {
    for (size_t i = 0; i < traits.size(); ++i) {
      const Node& source = program_.graph->node(node.inputs[i].node);
      if (!traits[i].is_constant_between_runs ||
          source.op != &graph::VariableOp()) {
        continue;
      }
      const VariableStore::Variable& variable = store_.at(source.name);
      constant_inputs_.push_back(
          {kernel, static_cast<int>(i), &variable, variable.version.value()});
    }
  }

  void Allocate(const Placement& placement) {
    try {
      AllocateAll(placement);
    } catch (const DeviceError& e) {
      throw DeviceError(fmt::format(
          "{}; the plan needs {} bytes for itself (intermediate {}, scratch "
          "{}, constants {}, boundary {}) and {} for variables{}; its largest "
          "tensors: {}",
          e.what(), report_.peak_size_bytes(), report_.memory.arena_size_bytes,
          report_.scratch_size_bytes, report_.constant_size_bytes,
          report_.boundary_size_bytes, report_.variable_size_bytes,
          report_.ResidentText(), report_.LargestTensors()));
    }
  }

  void AllocateAll(const Placement& placement) {
    for (const Node& node : program_.graph->nodes()) {
      if (node.op == &graph::VariableOp()) {
        report_.variable_size_bytes +=
            store_.at(node.name).buffer->size_bytes();
      }
    }
    arena_ = backend_.Allocate(report_.memory.arena_size_bytes);
    boundary_ = backend_.Allocate(placement.boundary_size_bytes());
    if (!backend_.is_host_memory()) {
      device_ = std::make_unique<DeviceBoundary>(backend_, boundary_.get(),
                                                 placement.input_size_bytes());
    }
    constants_ = backend_.Allocate(report_.constant_size_bytes);
    scratch_ = backend_.Allocate(report_.scratch_size_bytes);
    for (const Node& node : program_.graph->nodes()) {
      if (node.op == &graph::ConstantOp()) {
        stream_->CopyToDevice(Address({node.id, 0}, placement),
                              node.constant->bytes().data(),
                              node.constant->size_bytes());
      }
    }
    stream_->Synchronize();
  }

  std::byte* Address(Endpoint endpoint, const Placement& placement) {
    const Place& place = placement.of(endpoint);
    switch (place.kind) {
      case Place::Kind::kArena:
        return arena_->data() + placement.ArenaOffset(place);
      case Place::Kind::kBoundary:
        return boundary_->data() + place.position;
      case Place::Kind::kConstant:
        return constants_->data() + place.position;
      case Place::Kind::kResident:
        return residents_.at(program_.graph->node(endpoint.node).name)->data();
      case Place::Kind::kVariable:
        return store_.at(program_.graph->variable(place.variable).name)
            .buffer->data();
    }
    REPLICANT_CHECK(false, "unknown place");
  }

  void BindKernels(const std::vector<NodeId>& order,
                   const Placement& placement) {
    for (const NodeId id : order) {
      const auto kernel = kernels_.find(id);
      if (kernel == kernels_.end()) continue;
      const Node& node = program_.graph->node(id);
      kernels::KernelBindings bindings{.scratch = scratch_->data()};
      for (const Endpoint& input : node.inputs) {
        bindings.inputs.push_back(Address(input, placement));
      }
      for (int32_t i = 0; i < static_cast<int32_t>(node.outputs.size()); ++i) {
        bindings.outputs.push_back(Address({id, i}, placement));
      }
      kernel->second->Bind(bindings);
      launches_.push_back(kernel->second.get());
      sequence_.Add(kernel->second.get());
      report_.kernels.push_back({.op = std::string(node.op->name),
                                 .name = node.name,
                                 .description = kernel->second->Describe()});
      launched_nodes_.push_back(id);
      if (check_finite_) bound_outputs_[id] = bindings.outputs;
    }
  }

  // The caller's view: the device's own memory where the host can reach it.
  MutableTensorView ViewOf(Endpoint endpoint, const Placement& placement) {
    const graph::TensorType& type = program_.graph->type(endpoint);
    std::byte* const device = Address(endpoint, placement);
    return {type.dtype, type.shape,
            device_ == nullptr ? device : device_->HostAddress(device)};
  }

  void BindBoundary(const Placement& placement) {
    for (const Node& node : program_.graph->nodes()) {
      if (node.op != &graph::InputOp() || residents_.contains(node.name)) {
        continue;
      }
      inputs_.emplace(node.name, ViewOf({node.id, 0}, placement));
    }
    for (const Output& output : program_.outputs) {
      outputs_.push_back(ViewOf(output.endpoint(), placement));
    }
  }

  // Checks the values that the run starts from, so that no op is blamed for its
  // inputs.
  void CheckSourcesFinite() {
    for (const auto& [name, view] : inputs_) {
      ThrowIfNotFinite("input", name, HostTensor::Clone(view));
    }
    for (const Node& node : program_.graph->nodes()) {
      if (node.op == &graph::VariableOp()) {
        ThrowIfNotFinite("variable", node.name, store_.Get(node.name));
      }
    }
  }

  static void ThrowIfNotFinite(std::string_view kind, const std::string& name,
                               const HostTensor& value) {
    const std::optional<int64_t> element = FindNotFinite(value.view());
    if (!element) return;
    throw NumericError(fmt::format(
        "{} '{}': element {} of {}{} is not finite before the run", kind, name,
        *element, DTypeName(value.dtype()), value.shape().ToString()));
  }

  void CheckFinite(NodeId id) {
    const Node& node = program_.graph->node(id);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const graph::TensorType& type = node.outputs[i];
      if (!graph::IsFloating(type.dtype)) continue;
      HostTensor value(type.dtype, type.shape);
      stream_->CopyToHost(value.bytes().data(), bound_outputs_.at(id)[i],
                          value.size_bytes());
      stream_->Synchronize();
      const std::optional<int64_t> element = FindNotFinite(value.view());
      if (!element) continue;
      throw NumericError(fmt::format(
          "{}: {} '{}': element {} of output {}, {}, is not finite; it is the "
          "first op of this run that produced such a value",
          node.site.ToString(), node.op->name, node.name, *element, i,
          type.ToString()));
    }
  }

  VariableStore& store_;
  Backend& backend_;
  bool check_finite_;
  bool has_profile_;
  const std::map<std::string, ResidentInput*> residents_;
  graph::Program program_;
  PlanReport report_;
  std::unique_ptr<kernels::Stream> stream_;
  std::unique_ptr<Buffer> arena_;
  std::unique_ptr<Buffer> boundary_;
  std::unique_ptr<Buffer> constants_;
  std::unique_ptr<Buffer> scratch_;
  // null where the host reaches the backend's memory
  std::unique_ptr<DeviceBoundary> device_;
  std::map<NodeId, std::unique_ptr<Kernel>> kernels_;
  std::vector<ConstantInput> constant_inputs_;
  // the store's variables that the plan updates; entries of a map stay put
  std::set<VariableStore::Variable*> written_;
  std::set<const VariableStore::Variable*> written_together_;
  // in the order of the schedule
  std::vector<Kernel*> launches_;
  std::vector<NodeId> launched_nodes_;
  // profile only: time of every launch, summed over the runs
  std::vector<double> launch_ms_;
  int num_profiled_runs_ = 0;
  // debug mode only
  std::map<NodeId, std::vector<std::byte*>> bound_outputs_;
  std::map<std::string, MutableTensorView, std::less<>> inputs_;
  std::vector<MutableTensorView> outputs_;
  bool are_inputs_sent_ = false;
  bool is_running_ = false;
  // after what its recordings use
  LaunchSequence sequence_;
};

Executor::Executor(const Graph& graph, const PlanSpec& spec,
                   VariableStore& store, const CompileOptions& options)
    : impl_(std::make_unique<Impl>(graph, spec, store, options)) {}

Executor::~Executor() = default;

MutableTensorView Executor::input(std::string_view name) {
  return impl_->input(name);
}

std::vector<std::string> Executor::input_names() const {
  return impl_->input_names();
}

TensorView Executor::output(size_t index) const { return impl_->output(index); }

size_t Executor::num_outputs() const { return impl_->num_outputs(); }

void Executor::Run() {
  Start();
  Wait();
}

void Executor::Start() { impl_->Start(); }
void Executor::Wait() { impl_->Wait(); }
void Executor::SendInputs() { impl_->SendInputs(); }
void Executor::RecallInputs() { impl_->RecallInputs(); }
bool Executor::can_fill_ahead() const { return impl_->can_fill_ahead(); }

const PlanReport& Executor::report() const { return impl_->report(); }

std::vector<KernelProfile> Executor::profile() const {
  return impl_->profile();
}

std::string Executor::ToText() const { return impl_->ToText(); }

}  // namespace replicant::runtime
