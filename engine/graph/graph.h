#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "base/tensor/host_tensor.h"
#include "base/tensor/tensor_view.h"
#include "engine/graph/attributes.h"
#include "engine/graph/call_site.h"
#include "engine/graph/tensor_type.h"

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

// A handle to one output of one node. Op functions take and return it. The
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

// The arguments of an op's InferFn.
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
  // Input 0's dtype, or f32 if a pass has set the attribute "f32_result".
  DType ResultDType() const {
    return attributes.Has("f32_result") ? DType::kF32 : dtype(0);
  }

  std::string_view op;
  std::string_view name;
  CallSite site;
  std::span<const TensorType> inputs;
  const Attributes& attributes;
};

// The arguments of an op's GradientFn.
struct GradientContext {
  const Output& input(int i) const { return inputs[static_cast<size_t>(i)]; }
  const Output& output(int i = 0) const {
    return outputs[static_cast<size_t>(i)];
  }
  // d loss / d output i; invalid where the loss does not depend on output i.
  const Output& output_gradient(int i = 0) const {
    return output_gradients[static_cast<size_t>(i)];
  }

  const Node& node;
  std::vector<Output> inputs;
  std::vector<Output> outputs;
  std::vector<Output> output_gradients;
};

// The definition of an op. It has static storage; nodes point to it.
struct OpDef {
  using InferFn = std::vector<TensorType> (*)(const InferContext&);
  // Adds the adjoint ops and returns d loss / d input for each input.
  using GradientFn = std::vector<Output> (*)(const GradientContext&);

  // Unique: "MatMul". Backends look up their kernel by this name.
  std::string_view name;
  InferFn infer = nullptr;
  // Null for an op without gradient; no_gradient_reason then says why.
  GradientFn gradient = nullptr;
  std::string_view no_gradient_reason = {};
  // Elementwise ops carry the attribute "program" (ScalarProgram).
  bool is_elementwise = false;
  // Whether two nodes with equal inputs and attributes may become one. False
  // for inputs, variables and updates.
  bool is_pure = true;
};

// A node: one op applied to some outputs of earlier nodes.
struct Node {
  const TensorType& output_type(int i = 0) const {
    return outputs[static_cast<size_t>(i)];
  }

  NodeId id = -1;
  const OpDef* op = nullptr;
  // unique in the graph, open name scopes in front: "critic/MatMul"
  std::string name;
  std::vector<Endpoint> inputs;
  std::vector<TensorType> outputs;
  Attributes attributes;
  // Variables that the node writes. For i < updates.size(), output i is the new
  // version of updates[i], in the variable's own memory, and input i is the
  // version that it replaces.
  std::vector<VariableId> updates;
  // Index of the logical device that computes it (Graph::DeviceScope).
  int32_t device = 0;
  // The value of a Constant; null for every other op.
  std::shared_ptr<const HostTensor> constant;
  CallSite site;
};

// How the replicas of a data-parallel run agree on a variable that is not
// trained: by its mean, by the value of replica 0, or not at all.
enum class ReplicaAgreement { kMean, kFirst, kPerReplica };

// Writes the first value of a variable. The stream is named after the variable,
// so that the value does not depend on other variables.
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
// compiled (engine/runtime) and run many times.
//
// Op functions (graph/ops/) add nodes, which never change. A node's inputs are
// earlier nodes, so the order of addition is a valid order of execution. A node
// with wrong shapes or types is refused when it is added.
//
// State lives in variables. Read() returns the newest version of a variable in
// program order: the value before the run, or the result of the last update
// added so far. A run executes all users of a version before the update that
// replaces it.
//
// Thread-safety: one thread at a time.
class Graph {
 public:
  // `seed` feeds every random op of the graph.
  explicit Graph(uint64_t seed = 0) : seed_(seed) {}
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // A tensor that the caller fills before each run. Throws InvalidArgument if
  // the name is empty or taken in the graph.
  Output Input(const std::string& name, DType dtype, const Shape& shape,
               CallSite site = CallSite::Here());

  // A fixed tensor; the value is copied.
  Output Constant(TensorView value, CallSite site = CallSite::Here());
  // A scalar of any dtype, shape []. RoundToDType() rounds the value.
  Output Scalar(double value, DType dtype, CallSite site = CallSite::Here());

  // Declares a variable under the open scopes. Throws InvalidArgument if the
  // name is empty or taken.
  VariableId AddVariable(VariableSpec spec, CallSite site = CallSite::Here());
  // Returns the newest version of the variable.
  Output Read(VariableId variable, CallSite site = CallSite::Here());

  struct NodeSpec {
    const OpDef* op = nullptr;
    std::vector<Output> inputs;
    Attributes attributes = {};
    std::vector<VariableId> updates = {};
    // A number is appended to make it unique. Empty: the op's name.
    std::string name = {};
    std::shared_ptr<const HostTensor> constant = nullptr;
  };
  // Adds a node and returns its first output. For op functions and passes.
  // Throws what the op's `infer` throws, leaving the graph unchanged.
  Output Add(NodeSpec spec, CallSite site = CallSite::Here());
  // Output `index` of the node whose first output is `first`.
  static Output OutputOf(Output first, int index);

  // Reserves the name of a stream of random numbers and returns it with the
  // open name scopes in front. Throws InvalidArgument at site() if it is taken.
  std::string ReserveStreamName(const std::string& name);

  // Copies seed and variables of `other` into this empty graph. A pass starts
  // with it and then adds nodes one by one. The names of other's inputs are
  // kept for their copies.
  void CopyDeclarations(const Graph& other);

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
  // outside of any scope nodes are on device 0. Gradients() places adjoint ops
  // on the device of their op.
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

  // Names `site` in every node and error during its lifetime, whatever site the
  // functions called meanwhile get. The outermost open scope wins, so that a
  // message names the line of the user and not one of a layer.
  class SiteScope {
   public:
    SiteScope(Graph& graph, CallSite site);
    // For the graph of `output`, which is valid (checked).
    SiteScope(const Output& output, CallSite site);
    ~SiteScope();
    SiteScope(const SiteScope&) = delete;
    SiteScope& operator=(const SiteScope&) = delete;

   private:
    Graph& graph_;
    bool is_outermost_;
  };

  // Names `site` even inside of a SiteScope: Gradients() gives adjoint ops the
  // site of their op.
  class SiteOverride {
   public:
    SiteOverride(Graph& graph, CallSite site);
    ~SiteOverride();
    SiteOverride(const SiteOverride&) = delete;
    SiteOverride& operator=(const SiteOverride&) = delete;

   private:
    Graph& graph_;
    std::optional<CallSite> outer_;
  };

  // The site of the scope or override in force, for an error that is thrown
  // before a node is added. One is open (checked).
  CallSite site() const;

 private:
  std::string UniqueName(const std::string& wanted);
  // The site in force; `site` outside of any scope.
  CallSite SiteInForce(CallSite site) const { return site_.value_or(site); }

  uint64_t seed_;
  std::vector<Node> nodes_;
  std::vector<VariableSpec> variables_;
  // newest version by variable; node -1 where it was not read yet
  std::vector<Endpoint> versions_;
  // the names taken, each with the number to try next for a repetition
  std::map<std::string, int, std::less<>> names_;
  // names of inputs that are still to be copied
  std::set<std::string> names_of_inputs_;
  std::set<std::string> stream_names_;
  std::string scope_;
  int32_t device_ = 0;
  // set while a SiteScope or SiteOverride is open
  std::optional<CallSite> site_;
};

// The ops that Input(), Constant(), Scalar() and Read() add.
const OpDef& InputOp();
const OpDef& ConstantOp();
const OpDef& VariableOp();

}  // namespace replicant::graph
