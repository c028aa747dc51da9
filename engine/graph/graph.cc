#include "engine/graph/graph.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/error.h"
#include "base/nearest.h"

namespace replicant::graph {
namespace {

// Reads the type of a node without inputs from its attributes, so that a pass
// can copy the node like any other.
std::vector<TensorType> InferFromAttributes(const InferContext& context) {
  const auto dtype = ParseDType(context.attributes.Text("dtype"));
  REPLICANT_CHECK(dtype.has_value(), "unknown dtype '{}'",
                  context.attributes.Text("dtype"));
  return {{*dtype, Shape(std::span(context.attributes.Ints("shape")))}};
}

Attributes TypeAttributes(DType dtype, const Shape& shape) {
  return {{"dtype", std::string(DTypeName(dtype))},
          {"shape",
           std::vector<int64_t>(shape.dims().begin(), shape.dims().end())}};
}

std::vector<Output> VariableGradient(const GradientContext& /*context*/) {
  return {};
}

Graph& GraphOf(const Output& output, CallSite site) {
  REPLICANT_CHECK(output.is_valid(), "{}: an Output without graph",
                  site.ToString());
  return *output.graph;
}

}  // namespace

const OpDef& InputOp() {
  static const OpDef op{.name = "Input",
                        .infer = &InferFromAttributes,
                        .gradient = &VariableGradient,
                        .is_pure = false};
  return op;
}

const OpDef& ConstantOp() {
  static const OpDef op{.name = "Constant",
                        .infer = &InferFromAttributes,
                        .gradient = &VariableGradient,
                        .is_pure = false};
  return op;
}

const OpDef& VariableOp() {
  static const OpDef op{.name = "Variable",
                        .infer = &InferFromAttributes,
                        .gradient = &VariableGradient,
                        .is_pure = false};
  return op;
}

std::string CallSite::ToString() const {
  return fmt::format("{}:{}", file, line);
}

std::string TensorType::ToString() const {
  return fmt::format("{}{}", DTypeName(dtype), shape.ToString());
}

size_t TensorType::SizeBytes() const {
  return static_cast<size_t>(shape.num_elements()) * DTypeSize(dtype);
}

bool IsFloating(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kBF16;
}

const Node& Output::producer() const {
  REPLICANT_CHECK(is_valid(), "an Output without graph");
  return graph->node(node);
}

const TensorType& Output::type() const {
  REPLICANT_CHECK(is_valid(), "an Output without graph");
  return graph->type(endpoint());
}

void InferContext::Fail(const std::string& message) const {
  throw ShapeError(
      fmt::format("{}: {} '{}': {}", site.ToString(), op, name, message));
}

Output Graph::Input(const std::string& name, DType dtype, const Shape& shape,
                    CallSite site) {
  const std::string full_name = scope_ + name;
  if (name.empty() || names_.contains(full_name)) {
    throw InvalidArgument(fmt::format(
        "{}: Input: the name '{}' is {}; hint: an input needs a unique name",
        SiteInForce(site).ToString(), full_name,
        name.empty() ? "empty" : "taken"));
  }
  return Add({.op = &InputOp(),
              .attributes = TypeAttributes(dtype, shape),
              .name = name},
             site);
}

Output Graph::Constant(TensorView value, CallSite site) {
  return Add({.op = &ConstantOp(),
              .attributes = TypeAttributes(value.dtype(), value.shape()),
              .constant =
                  std::make_shared<const HostTensor>(HostTensor::Clone(value))},
             site);
}

Output Graph::Scalar(double value, DType dtype, CallSite site) {
  HostTensor tensor(dtype, Shape({}));
  const double rounded = RoundToDType(value, dtype);
  switch (dtype) {
    case DType::kF32:
      tensor.MutableSpan<float>()[0] = static_cast<float>(rounded);
      break;
    case DType::kF64:
      tensor.MutableSpan<double>()[0] = rounded;
      break;
    case DType::kBF16:
      tensor.MutableSpan<BFloat16>()[0] = BFloat16(static_cast<float>(rounded));
      break;
    case DType::kU8:
      tensor.MutableSpan<uint8_t>()[0] = static_cast<uint8_t>(rounded);
      break;
    case DType::kI32:
      tensor.MutableSpan<int32_t>()[0] = static_cast<int32_t>(rounded);
      break;
    case DType::kI64:
      // 2^63 - 1 is not a double; doubles from 2^63 on would overflow
      tensor.MutableSpan<int64_t>()[0] =
          rounded >= 0x1p63 ? std::numeric_limits<int64_t>::max()
                            : static_cast<int64_t>(rounded);
      break;
    case DType::kBool:
      tensor.MutableSpan<bool>()[0] = rounded != 0.0;
      break;
  }
  return Constant(tensor.view(), site);
}

VariableId Graph::AddVariable(VariableSpec spec, CallSite site) {
  const std::string full_name = scope_ + spec.name;
  if (spec.name.empty() || names_.contains(full_name)) {
    throw InvalidArgument(
        fmt::format("{}: AddVariable: the name '{}' is {}; hint: a variable "
                    "needs a unique name",
                    SiteInForce(site).ToString(), full_name,
                    spec.name.empty() ? "empty" : "taken"));
  }
  names_[full_name] = 1;
  spec.name = full_name;
  variables_.push_back(std::move(spec));
  versions_.emplace_back();
  return static_cast<VariableId>(variables_.size() - 1);
}

Output Graph::Read(VariableId variable, CallSite site) {
  REPLICANT_CHECK(
      variable >= 0 && static_cast<size_t>(variable) < variables_.size(),
      "variable {} of {}", variable, variables_.size());
  Endpoint& version = versions_[static_cast<size_t>(variable)];
  if (version.node < 0) {
    const VariableSpec& spec = this->variable(variable);
    Attributes attributes = TypeAttributes(spec.dtype, spec.shape);
    attributes.Set("variable", int64_t{variable});
    Node node;
    node.id = static_cast<NodeId>(nodes_.size());
    node.op = &VariableOp();
    // the variable's own name, which AddVariable() has reserved
    node.name = spec.name;
    node.outputs = {{spec.dtype, spec.shape}};
    node.attributes = std::move(attributes);
    node.device = device_;
    node.site = SiteInForce(site);
    version = {node.id, 0};
    nodes_.push_back(std::move(node));
  }
  return output(version);
}

Output Graph::Add(NodeSpec spec, CallSite site) {
  REPLICANT_CHECK(spec.op != nullptr, "a node without op");
  site = SiteInForce(site);
  std::vector<Endpoint> inputs;
  std::vector<TensorType> types;
  for (const Output& input : spec.inputs) {
    REPLICANT_CHECK(input.is_valid(), "{}: an input of {} is not valid",
                    site.ToString(), spec.op->name);
    if (input.graph != this) {
      throw InvalidArgument(
          fmt::format("{}: {}: input '{}' belongs to another graph",
                      site.ToString(), spec.op->name, input.producer().name));
    }
    inputs.push_back(input.endpoint());
    types.push_back({input.dtype(), input.shape()});
  }

  const std::string wanted =
      scope_ + (spec.name.empty() ? std::string(spec.op->name) : spec.name);
  const InferContext context{.op = spec.op->name,
                             .name = wanted,
                             .site = site,
                             .inputs = types,
                             .attributes = spec.attributes};
  std::vector<TensorType> outputs = spec.op->infer(context);
  REPLICANT_CHECK(spec.updates.size() <= outputs.size() &&
                      spec.updates.size() <= inputs.size(),
                  "{} updates {} variables with {} inputs, {} outputs",
                  spec.op->name, spec.updates.size(), inputs.size(),
                  outputs.size());

  Node node;
  node.id = static_cast<NodeId>(nodes_.size());
  node.op = spec.op;
  const bool has_name =
      spec.op == &InputOp() && names_of_inputs_.erase(wanted) > 0;
  node.name = has_name ? wanted : UniqueName(wanted);
  node.inputs = std::move(inputs);
  node.outputs = std::move(outputs);
  node.attributes = std::move(spec.attributes);
  node.updates = std::move(spec.updates);
  node.device = device_;
  node.constant = std::move(spec.constant);
  node.site = site;
  for (size_t i = 0; i < node.updates.size(); ++i) {
    versions_[static_cast<size_t>(node.updates[i])] = {node.id,
                                                       static_cast<int32_t>(i)};
  }
  nodes_.push_back(std::move(node));
  return {this, nodes_.back().id, 0};
}

Output Graph::OutputOf(Output first, int index) {
  REPLICANT_CHECK(index >= 0 && static_cast<size_t>(index) <
                                    first.producer().outputs.size(),
                  "output {} of {}", index, first.producer().name);
  return {first.graph, first.node, index};
}

std::string Graph::ReserveStreamName(const std::string& name) {
  std::string full_name = scope_ + name;
  if (!stream_names_.insert(full_name).second) {
    throw InvalidArgument(
        fmt::format("{}: the random stream '{}' is taken; hint: two ops with "
                    "one stream would draw the same numbers",
                    site().ToString(), full_name));
  }
  return full_name;
}

void Graph::CopyDeclarations(const Graph& other) {
  REPLICANT_CHECK(nodes_.empty() && variables_.empty(),
                  "CopyDeclarations into a graph that is not empty");
  seed_ = other.seed_;
  variables_ = other.variables_;
  versions_.assign(variables_.size(), Endpoint{});
  for (const VariableSpec& spec : variables_) names_[spec.name] = 1;
  for (const Node& node : other.nodes_) {
    if (node.op != &InputOp()) continue;
    names_[node.name] = 1;
    names_of_inputs_.insert(node.name);
  }
}

const TensorType& Graph::type(Endpoint endpoint) const {
  return node(endpoint.node).output_type(endpoint.index);
}

VariableId Graph::FindVariable(std::string_view name) const {
  std::string nearest;
  int nearest_distance = std::numeric_limits<int>::max();
  for (size_t i = 0; i < variables_.size(); ++i) {
    if (variables_[i].name == name) return static_cast<VariableId>(i);
    const int distance = EditDistance(name, variables_[i].name);
    if (distance < nearest_distance) {
      nearest_distance = distance;
      nearest = variables_[i].name;
    }
  }
  throw InvalidArgument(
      nearest.empty()
          ? fmt::format("FindVariable: no variable '{}'; the graph has none",
                        name)
          : fmt::format("FindVariable: no variable '{}'; hint: the nearest "
                        "name is '{}'",
                        name, nearest));
}

std::string Graph::UniqueName(const std::string& wanted) {
  if (names_.emplace(wanted, 1).second) return wanted;
  for (int& number = names_[wanted];; ++number) {
    std::string name = fmt::format("{}_{}", wanted, number);
    if (names_.emplace(name, 1).second) return name;
  }
}

CallSite Graph::site() const {
  REPLICANT_CHECK(site_.has_value(), "no SiteScope is open");
  return *site_;
}

Graph::Scope::Scope(Graph& graph, std::string_view name)
    : graph_(graph), outer_size_(graph.scope_.size()) {
  graph_.scope_ += name;
  graph_.scope_ += '/';
}

Graph::Scope::~Scope() { graph_.scope_.resize(outer_size_); }

Graph::DeviceScope::DeviceScope(Graph& graph, int32_t device)
    : graph_(graph), outer_(graph.device_) {
  graph_.device_ = device;
}

Graph::DeviceScope::~DeviceScope() { graph_.device_ = outer_; }

Graph::SiteScope::SiteScope(Graph& graph, CallSite site)
    : graph_(graph), is_outermost_(!graph.site_.has_value()) {
  if (is_outermost_) graph_.site_ = site;
}

Graph::SiteScope::SiteScope(const Output& output, CallSite site)
    : SiteScope(GraphOf(output, site), site) {}

Graph::SiteScope::~SiteScope() {
  if (is_outermost_) graph_.site_.reset();
}

Graph::SiteOverride::SiteOverride(Graph& graph, CallSite site)
    : graph_(graph), outer_(graph.site_) {
  graph_.site_ = site;
}

Graph::SiteOverride::~SiteOverride() { graph_.site_ = outer_; }

}  // namespace replicant::graph
