#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/rng.h"
#include "core/graph/attributes.h"
#include "core/graph/call_site.h"
#include "core/graph/tensor_type.h"
#include "core/tensor/host_tensor.h"
#include "core/tensor/tensor_view.h"

namespace replicant::graph {

class Graph;
struct Node;

using NodeId = int32_t;
using VariableId = int32_t;

// One output of one node, within its graph.
struct Endpoint {
  bool operator==(const Endpoint&) const = default;
  bool operator<(const Endpoint& other) const {
    return node != other.node ? node < other.node : index < other.index;
  }

  NodeId node = -1;
  int32_t index = 0;
};

// A handle to one output of one node: what op functions take and return. The
// graph owns the node and must outlive the handle.
struct Output {
  bool is_valid() const { return graph != nullptr; }
  const Node& producer() const;
  const TensorType& type() const;
  const Shape& shape() const { return type().shape; }
  DType dtype() const { return type().dtype; }
  Endpoint endpoint() const { return {node, index}; }
  bool operator==(const Output&) const = default;

  Graph* graph = nullptr;
  NodeId node = -1;
  int32_t index = 0;
};

// Stands for "no gradient flows here" where a gradient function returns one
// Output per input.
inline constexpr Output kNoGradient{};

// What an op's InferTypes is given, and how it refuses. Layouts are none of its
// business: it sees and gives row-major types.
struct InferContext {
  // Throws ShapeError "<file:line>: <op> '<name>': <message>".
  [[noreturn]] void Fail(const std::string& message) const;

  int num_inputs() const { return static_cast<int>(inputs.size()); }
  const Shape& shape(int input) const {
    return inputs[static_cast<size_t>(input)].shape;
  }
  DType dtype(int input) const {
    return inputs[static_cast<size_t>(input)].dtype;
  }
  // Input 0's, or f32 where a pass has set the attribute "f32_result".
  DType ResultDType() const {
    return attributes.Has("f32_result") ? DType::kF32 : dtype(0);
  }

  std::string_view op;
  std::string_view name;
  CallSite site;
  std::span<const TensorType> inputs;
  const Attributes& attributes;
};

// What an op's gradient is given.
struct GradientContext {
  const Output& input(int i) const { return inputs[static_cast<size_t>(i)]; }
  const Output& output(int i = 0) const {
    return outputs[static_cast<size_t>(i)];
  }
  // d loss / d output i; not valid where the loss does not depend on it.
  const Output& output_gradient(int i = 0) const {
    return output_gradients[static_cast<size_t>(i)];
  }

  const Node& node;
  std::vector<Output> inputs;
  std::vector<Output> outputs;
  std::vector<Output> output_gradients;
};

// What an op is. Each op has one, with static storage; nodes point to it.
struct OpDef {
  using InferFn = std::vector<TensorType> (*)(const InferContext&);
  // Adds the adjoint ops and returns d loss / d input for each input.
  using GradientFn = std::vector<Output> (*)(const GradientContext&);

  // "MatMul"; unique. Backends find their kernel by it.
  std::string_view name;
  InferFn infer = nullptr;
  // Null for an op without gradient; then the reason is given.
  GradientFn gradient = nullptr;
  std::string_view no_gradient_reason = {};
  // Elementwise ops carry the attribute "program" (ScalarProgram).
  bool is_elementwise = false;
  // Two nodes with equal inputs and attributes are one (false for inputs,
  // variables and whatever writes one).
  bool is_pure = true;
};

// A node: one op applied to some outputs of earlier nodes.
struct Node {
  const TensorType& output_type(int i = 0) const {
    return outputs[static_cast<size_t>(i)];
  }

  NodeId id = -1;
  const OpDef* op = nullptr;
  // unique in the graph, with the scopes in which it was added: "critic/MatMul"
  std::string name;
  std::vector<Endpoint> inputs;
  std::vector<TensorType> outputs;
  Attributes attributes;
  // Variables that the node writes. Output i, for i < updates.size(), is the
  // new version of updates[i] and lies in the variable's own memory; input i is
  // the version that it replaces.
  std::vector<VariableId> updates;
  // Which of a replica's logical devices computes it (Graph::DeviceScope).
  int32_t device = 0;
  // The value of a Constant; null for every other op.
  std::shared_ptr<const HostTensor> constant;
  CallSite site;
};

// How the replicas of a data-parallel run come to agree on a variable that is
// not trained.
enum class ReplicaAgreement { kMean, kFirst, kPerReplica };

// Fills the first value of a variable. The stream is named after the variable,
// so that a variable's first value does not depend on the others.
using Initializer = std::function<void(RandomStream&, MutableTensorView)>;

struct VariableSpec {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  // Zeros if empty.
  Initializer initializer = {};
  bool is_trainable = true;
  ReplicaAgreement agreement = ReplicaAgreement::kMean;
};

// A static computation on tensors of fixed type and shape: built once, then
// compiled (core/runtime) and run many times.
//
// Nodes are added by op functions (graph/ops/) and never change; a node's
// inputs are earlier nodes, so the order of addition is a valid order of
// execution. Wrong shapes or types are refused where the node is added.
//
// State lives in variables. Read() gives the newest version of a variable in
// program order: what it held before the run, or what the last update added so
// far makes of it. A run executes everything that uses a version before the
// update that replaces it.
//
// Thread-safety: one thread at a time.
class Graph {
 public:
  // `seed` feeds every random op of the graph.
  explicit Graph(uint64_t seed = 0) : seed_(seed) {}
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // A tensor that the caller fills before each run. Throws InvalidArgument if
  // the name is empty or taken.
  Output Input(const std::string& name, DType dtype, const Shape& shape,
               CallSite site = CallSite::Here());

  // A fixed tensor; the value is copied.
  Output Constant(TensorView value, CallSite site = CallSite::Here());
  // A scalar of any dtype, shape [], rounded as RoundToDType() does.
  Output Scalar(double value, DType dtype, CallSite site = CallSite::Here());

  // Declares a variable under the open scopes. Throws InvalidArgument if the
  // name is empty or taken.
  VariableId AddVariable(VariableSpec spec, CallSite site = CallSite::Here());
  // The newest version of the variable.
  Output Read(VariableId variable, CallSite site = CallSite::Here());

  struct NodeSpec {
    const OpDef* op = nullptr;
    std::vector<Output> inputs;
    Attributes attributes = {};
    std::vector<VariableId> updates = {};
    // Made unique with a number. Empty: the op's name.
    std::string name = {};
    std::shared_ptr<const HostTensor> constant = nullptr;
    // One per output, set by the layout pass; none means row-major.
    std::vector<Layout> layouts = {};
  };
  // Adds a node and returns its first output. For op functions and passes.
  // Throws what the op's InferTypes throws, leaving the graph unchanged.
  Output Add(NodeSpec spec, CallSite site);
  // Output `index` of the node that `first` is the first output of.
  static Output OutputOf(Output first, int index);

  // Reserves the name of a stream of random numbers under the open scopes and
  // returns it with them. Throws InvalidArgument if it is taken.
  std::string ReserveStreamName(const std::string& name, CallSite site);

  // Copies seed, variables and scopes of `other` into this empty graph: the
  // start of a pass, which then adds nodes one by one.
  void CopyDeclarations(const Graph& other);
  // Makes `version` the newest version of the variable.
  void SetNewestVersion(VariableId variable, Output version);

  const std::vector<Node>& nodes() const { return nodes_; }
  const Node& node(NodeId id) const { return nodes_[static_cast<size_t>(id)]; }
  const TensorType& type(Endpoint endpoint) const;
  Output output(Endpoint endpoint) {
    return {this, endpoint.node, endpoint.index};
  }
  const std::vector<VariableSpec>& variables() const { return variables_; }
  const VariableSpec& variable(VariableId id) const {
    return variables_[static_cast<size_t>(id)];
  }
  // Throws InvalidArgument with the nearest name.
  VariableId FindVariable(std::string_view name) const;
  uint64_t seed() const { return seed_; }

  // Opens a name scope for its lifetime: names become "scope/name".
  class Scope {
   public:
    Scope(Graph& graph, std::string_view name);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Graph& graph_;
    size_t outer_size_;
  };

  // Places the nodes that are added during its lifetime on a logical device;
  // outside of one they are on device 0. Adjoint ops are where the op is that
  // they belong to.
  class DeviceScope {
   public:
    DeviceScope(Graph& graph, int32_t device);
    ~DeviceScope();
    DeviceScope(const DeviceScope&) = delete;
    DeviceScope& operator=(const DeviceScope&) = delete;

   private:
    Graph& graph_;
    int32_t outer_;
  };

  // While it lives, nodes get this call site whatever their op function says:
  // adjoint ops are laid to the line of the op that they belong to.
  class SiteOverride {
   public:
    SiteOverride(Graph& graph, CallSite site);
    ~SiteOverride();
    SiteOverride(const SiteOverride&) = delete;
    SiteOverride& operator=(const SiteOverride&) = delete;

   private:
    Graph& graph_;
    CallSite outer_;
    bool was_active_;
  };

 private:
  std::string UniqueName(const std::string& wanted);
  CallSite EffectiveSite(CallSite site) const;

  uint64_t seed_;
  std::vector<Node> nodes_;
  std::vector<VariableSpec> variables_;
  // newest version by variable; node -1 where it was not read yet
  std::vector<Endpoint> versions_;
  // the names taken, each with the number to try next for a repetition
  std::map<std::string, int, std::less<>> names_;
  std::set<std::string> stream_names_;
  std::string scope_;
  int32_t device_ = 0;
  CallSite site_override_;
  bool has_site_override_ = false;
};

// The ops behind Input(), Constant(), Scalar() and Read().
const OpDef& InputOp();
const OpDef& ConstantOp();
const OpDef& VariableOp();

}  // namespace replicant::graph
