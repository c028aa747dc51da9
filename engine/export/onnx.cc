#include "engine/export/onnx.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>
#include <span>
#include <string_view>

#include "base/error.h"
#include "engine/export/onnx_model.h"

namespace replicant::exporting {
namespace {

using graph::Endpoint;
using graph::Node;
using graph::ScalarOp;
using graph::ScalarProgram;
using Names = std::vector<std::string>;
using OnnxAttributes = std::vector<std::pair<std::string, OnnxAttribute>>;

constexpr std::array<int64_t, 4> kToChannelsFirst = {0, 3, 1, 2};
constexpr std::array<int64_t, 4> kToChannelsLast = {0, 2, 3, 1};

std::vector<int64_t> VectorOf(std::span<const int64_t> values) {
  return {values.begin(), values.end()};
}

// Adds the nodes of a graph to a model, one call after the other.
class Exporter {
 public:
  Exporter(const graph::Graph& graph, const OnnxOptions& options)
      : graph_(graph), options_(options) {}

  std::string Export() {
    for (const auto& [name, output] : options_.outputs) {
      MarkNeeded(output.endpoint());
    }
    for (const Node& node : graph_.nodes()) {
      if (needed_.contains(node.id)) Add(node);
    }
    for (const auto& [name, output] : options_.outputs) {
      model_.AddNode({.op = "Identity",
                      .inputs = {values_.at(output.endpoint())},
                      .outputs = {name},
                      .attributes = {},
                      .name = name});
      model_.AddOutput(ValueOf(name, output.type()));
    }
    return model_.Encode(options_.name, kOnnxOpset, options_.metadata);
  }

 private:
  using AddFn = void (Exporter::*)(const Node&);

  void MarkNeeded(Endpoint endpoint) {
    if (!needed_.insert(endpoint.node).second) return;
    for (const Endpoint input : graph_.node(endpoint.node).inputs) {
      MarkNeeded(input);
    }
  }

  // The ops with a form in ONNX, except elementwise ones, by name.
  static const std::map<std::string_view, AddFn>& Ops() {
    static const std::map<std::string_view, AddFn> ops = {
        {"Input", &Exporter::AddInput},
        {"Constant", &Exporter::AddConstant},
        {"Variable", &Exporter::AddVariable},
        {"ArgMax", &Exporter::AddArgMax},
        {"AveragePool2d", &Exporter::AddPool},
        {"Concat", &Exporter::AddConcat},
        {"Conv2d", &Exporter::AddConv},
        {"Gather", &Exporter::AddGather},
        {"Identity", &Exporter::AddIdentity},
        {"LayerNorm", &Exporter::AddLayerNorm},
        {"LogSoftmax", &Exporter::AddSoftmax},
        {"MatMul", &Exporter::AddMatMul},
        {"MaxPool2d", &Exporter::AddPool},
        {"Pad", &Exporter::AddPad},
        {"ReduceMax", &Exporter::AddReduce},
        {"ReduceMean", &Exporter::AddReduce},
        {"ReduceMin", &Exporter::AddReduce},
        {"ReduceSum", &Exporter::AddReduce},
        {"Reshape", &Exporter::AddReshape},
        {"Slice", &Exporter::AddSlice},
        {"Softmax", &Exporter::AddSoftmax},
        {"StopGradient", &Exporter::AddIdentity},
        {"Transpose", &Exporter::AddTranspose},
        {"UpsampleNearest2d", &Exporter::AddUpsample},
    };
    return ops;
  }

  void Add(const Node& node) {
    node_ = &node;
    if (node.op->is_elementwise) {
      AddProgram(node);
      return;
    }
    const auto found = Ops().find(node.op->name);
    if (found == Ops().end()) {
      Names names;
      for (const auto& [name, add] : Ops()) names.emplace_back(name);
      Fail(fmt::format("has no form in ONNX; allowed: elementwise ops, {}",
                       fmt::join(names, ", ")));
    }
    (this->*found->second)(node);
  }

  // At the line that added the current node.
  [[noreturn]] void Fail(const std::string& why) const {
    throw InvalidArgument(fmt::format("{}: {} '{}' {}", node_->site.ToString(),
                                      node_->op->name, node_->name, why));
  }

  // --- names and small constants ---

  const graph::TensorType& InputType(const Node& node, size_t i) const {
    return graph_.type(node.inputs.at(i));
  }
  const std::string& InputName(const Node& node, size_t i) const {
    return values_.at(node.inputs.at(i));
  }
  std::string NewName() {
    return fmt::format("{}#{}", node_->name, num_names_++);
  }
  bool IsBatch(const Shape& shape) const {
    return options_.batch_size > 0 && shape.rank() > 0 &&
           shape[0] == options_.batch_size;
  }
  OnnxValue ValueOf(const std::string& name,
                    const graph::TensorType& type) const {
    OnnxValue value{.name = name, .dtype = type.dtype, .dims = {}};
    for (const int64_t dim : type.shape.dims()) value.dims.emplace_back(dim);
    if (IsBatch(type.shape)) value.dims[0] = "batch";
    return value;
  }

  std::string Ints(const std::vector<int64_t>& values) {
    HostTensor tensor(DType::kI64,
                      Shape({static_cast<int64_t>(values.size())}));
    std::ranges::copy(values, tensor.MutableSpan<int64_t>().begin());
    return Constant(tensor);
  }
  std::string Scalar(double value, DType dtype) {
    HostTensor tensor(dtype, Shape({}));
    switch (dtype) {
      case DType::kF32:
        tensor.MutableSpan<float>()[0] = static_cast<float>(value);
        break;
      case DType::kF64:
        tensor.MutableSpan<double>()[0] = value;
        break;
      case DType::kI32:
        tensor.MutableSpan<int32_t>()[0] = static_cast<int32_t>(value);
        break;
      case DType::kI64:
        tensor.MutableSpan<int64_t>()[0] = static_cast<int64_t>(value);
        break;
      default:
        Fail(fmt::format("has a constant of type {}, which has no form in ONNX",
                         DTypeName(dtype)));
    }
    return Constant(tensor);
  }
  std::string Constant(const HostTensor& tensor) {
    std::string name = NewName();
    model_.AddInitializer(name, tensor.view());
    return name;
  }

  // Adds an operator with one result and returns the result.
  std::string Op(const std::string& op, Names inputs,
                 OnnxAttributes attributes = {}) {
    std::string name = NewName();
    model_.AddNode({.op = op,
                    .inputs = std::move(inputs),
                    .outputs = {name},
                    .attributes = std::move(attributes),
                    .name = name});
    return name;
  }
  // Takes a value for the first result of a node.
  void SetResult(const Node& node, std::string value) {
    values_[{node.id, 0}] = std::move(value);
  }

  std::string Permuted(const std::string& x,
                       std::span<const int64_t> permutation) {
    return Op("Transpose", {x}, {{"perm", VectorOf(permutation)}});
  }
  std::string Cast(const std::string& x, DType dtype) {
    return Op("Cast", {x}, {{"to", OnnxType(dtype)}});
  }

  // --- ops ---

  void AddInput(const Node& node) {
    model_.AddInput(ValueOf(node.name, node.output_type()));
    SetResult(node, node.name);
  }
  void AddConstant(const Node& node) {
    SetResult(node, Constant(*node.constant));
  }
  void AddVariable(const Node& node) {
    const graph::VariableSpec& spec = graph_.variable(
        static_cast<graph::VariableId>(node.attributes.Int("variable")));
    model_.AddInitializer(spec.name, options_.value_of(spec.name).view());
    SetResult(node, spec.name);
  }
  void AddIdentity(const Node& node) { SetResult(node, InputName(node, 0)); }
  void AddConcat(const Node& node) {
    Names inputs;
    const int64_t axis = node.attributes.Int("axis");
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (axis == 0) RefuseBatch(node, i);
      inputs.push_back(InputName(node, i));
    }
    SetResult(node, Op("Concat", inputs, {{"axis", axis}}));
  }
  void AddGather(const Node& node) {
    RefuseBatch(node, 0);  // the table
    SetResult(node, Op("Gather", {InputName(node, 0), InputName(node, 1)}));
  }
  void AddTranspose(const Node& node) {
    const std::vector<int64_t>& permutation =
        node.attributes.Ints("permutation");
    if (IsBatch(InputType(node, 0).shape) && permutation[0] != 0) FailMixed();
    SetResult(node, Permuted(InputName(node, 0), permutation));
  }
  void AddSoftmax(const Node& node) {
    RefuseVectorOfBatch(node);
    SetResult(node, Op(std::string(node.op->name), {InputName(node, 0)},
                       {{"axis", int64_t{-1}}}));
  }
  void AddArgMax(const Node& node) {
    RefuseVectorOfBatch(node);
    const std::string index =
        Op("ArgMax", {InputName(node, 0)},
           {{"axis", int64_t{-1}}, {"keepdims", int64_t{0}}});
    SetResult(node, Cast(index, node.output_type().dtype));
  }
  void AddMatMul(const Node& node) {
    // a row of the result is one of `a`, unless `a` is transposed
    if (node.attributes.Bool("transpose_a")) RefuseBatch(node, 0);
    RefuseBatch(node, 1);
    SetResult(node,
              Op("Gemm", {InputName(node, 0), InputName(node, 1)},
                 {{"transA", int64_t{node.attributes.Bool("transpose_a")}},
                  {"transB", int64_t{node.attributes.Bool("transpose_b")}}}));
  }
  void AddLayerNorm(const Node& node) {
    RefuseVectorOfBatch(node);
    SetResult(node,
              Op("LayerNormalization",
                 {InputName(node, 0), InputName(node, 1), InputName(node, 2)},
                 {{"axis", int64_t{-1}},
                  {"epsilon",
                   static_cast<float>(node.attributes.Float("epsilon"))}}));
  }
  void AddConv(const Node& node) {
    const int64_t stride = node.attributes.Int("stride");
    const int64_t padding = node.attributes.Int("padding");
    const std::string y =
        Op("Conv",
           {Permuted(InputName(node, 0), kToChannelsFirst), InputName(node, 1)},
           {{"strides", std::vector<int64_t>(2, stride)},
            {"pads", std::vector<int64_t>(4, padding)}});
    SetResult(node, Permuted(y, kToChannelsLast));
  }
  void AddPool(const Node& node) {
    const int64_t window = node.attributes.Int("window");
    const std::string op =
        node.op->name == "MaxPool2d" ? "MaxPool" : "AveragePool";
    const std::string y =
        Op(op, {Permuted(InputName(node, 0), kToChannelsFirst)},
           {{"kernel_shape", std::vector<int64_t>(2, window)},
            {"strides", std::vector<int64_t>(2, node.attributes.Int("stride"))},
            {"pads", std::vector<int64_t>(4, node.attributes.Int("padding"))}});
    SetResult(node, Permuted(y, kToChannelsLast));
  }
  void AddUpsample(const Node& node) {
    const auto scale = static_cast<float>(node.attributes.Int("scale"));
    HostTensor scales(DType::kF32, Shape({4}));
    std::ranges::copy(std::array{1.0F, 1.0F, scale, scale},
                      scales.MutableSpan<float>().begin());
    const std::string y = Op(
        "Resize",
        {Permuted(InputName(node, 0), kToChannelsFirst), "", Constant(scales)},
        {{"mode", std::string("nearest")},
         {"nearest_mode", std::string("floor")},
         {"coordinate_transformation_mode", std::string("asymmetric")}});
    SetResult(node, Permuted(y, kToChannelsLast));
  }
  void AddReduce(const Node& node) {
    const std::vector<int64_t>& axes = node.attributes.Ints("axes");
    const bool has_batch = IsBatch(InputType(node, 0).shape);
    if (has_batch && (axes.empty() || std::ranges::count(axes, 0) > 0)) {
      FailMixed();
    }
    Names inputs = {InputName(node, 0)};
    if (!axes.empty()) inputs.push_back(Ints(axes));
    SetResult(node,
              Op(std::string(node.op->name), inputs,
                 {{"keepdims", int64_t{node.attributes.Bool("keep_dims")}}}));
  }
  void AddReshape(const Node& node) {
    const Shape& to = node.output_type().shape;
    std::vector<int64_t> dims = VectorOf(to.dims());
    if (IsBatch(InputType(node, 0).shape)) {
      if (!IsBatch(to)) FailMixed();
      dims[0] = 0;  // as in the input
    }
    SetResult(node, Op("Reshape", {InputName(node, 0), Ints(dims)}));
  }
  void AddSlice(const Node& node) {
    const std::vector<int64_t>& begin = node.attributes.Ints("begin");
    const std::vector<int64_t>& size = node.attributes.Ints("size");
    const Shape& from = InputType(node, 0).shape;
    std::vector<int64_t> axes, begins, ends;
    for (int axis = 0; axis < from.rank(); ++axis) {
      const auto a = static_cast<size_t>(axis);
      if (size[a] == from[axis]) continue;
      if (axis == 0 && IsBatch(from)) FailMixed();
      axes.push_back(axis);
      begins.push_back(begin[a]);
      ends.push_back(begin[a] + size[a]);
    }
    SetResult(node, Op("Slice", {InputName(node, 0), Ints(begins), Ints(ends),
                                 Ints(axes)}));
  }
  void AddPad(const Node& node) {
    std::vector<int64_t> pads = node.attributes.Ints("before");
    const std::vector<int64_t>& after = node.attributes.Ints("after");
    if (IsBatch(InputType(node, 0).shape) && pads[0] + after[0] > 0) {
      FailMixed();
    }
    pads.insert(pads.end(), after.begin(), after.end());
    const std::string value =
        Scalar(node.attributes.Float("value"), node.output_type().dtype);
    SetResult(node, Op("Pad", {InputName(node, 0), Ints(pads), value}));
  }

  [[noreturn]] void FailMixed() const {
    Fail("mixes the rows of a batch, whose number is open");
  }
  // For an input of which every row has a part in each row of the result.
  void RefuseBatch(const Node& node, size_t input) const {
    if (IsBatch(InputType(node, input).shape)) FailMixed();
  }
  // For an op along the last axis of its first input.
  void RefuseVectorOfBatch(const Node& node) const {
    if (InputType(node, 0).shape.rank() == 1) RefuseBatch(node, 0);
  }

  // --- elementwise ops ---

  void AddProgram(const Node& node) {
    const ScalarProgram& program = node.attributes.Program("program");
    Names values;
    std::vector<DType> dtypes;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      // broadcast, its rows would be an inner dimension of the result
      if (InputType(node, i).shape.rank() < node.output_type().shape.rank()) {
        RefuseBatch(node, i);
      }
      values.push_back(InputName(node, i));
      dtypes.push_back(InputType(node, i).dtype);
    }
    for (const ScalarProgram::Instruction& instruction : program.instructions) {
      const auto operand = [&](size_t i) {
        return values.at(static_cast<size_t>(instruction.operands.at(i)));
      };
      Names operands;
      for (int i = 0; i < graph::ScalarOpArity(instruction.op); ++i) {
        operands.push_back(operand(static_cast<size_t>(i)));
      }
      const DType dtype =
          dtypes.at(static_cast<size_t>(instruction.operands[0]));
      values.push_back(AddInstruction(instruction, dtype, operands));
      dtypes.push_back(instruction.dtype);
    }
    SetResult(node, Broadcast(node, values.back()));
  }

  // Operators broadcast their operands; a node may be larger than all of them.
  std::string Broadcast(const Node& node, const std::string& x) {
    const Shape& shape = node.output_type().shape;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (InputType(node, i).shape == shape) return x;
    }
    std::vector<int64_t> dims = VectorOf(shape.dims());
    // 1 leaves a dimension unchanged: only operands can bring the batch
    if (IsBatch(shape)) dims[0] = 1;
    return Op("Expand", {x, Ints(dims)});
  }

  // `operands` of type `dtype`, except the condition of a selection.
  std::string AddInstruction(const ScalarProgram::Instruction& instruction,
                             DType dtype, const Names& operands) {
    static const std::map<ScalarOp, std::string> plain = {
        {ScalarOp::kNegate, "Neg"},        {ScalarOp::kAbs, "Abs"},
        {ScalarOp::kSign, "Sign"},         {ScalarOp::kExp, "Exp"},
        {ScalarOp::kLog, "Log"},           {ScalarOp::kSqrt, "Sqrt"},
        {ScalarOp::kSin, "Sin"},           {ScalarOp::kCos, "Cos"},
        {ScalarOp::kTanh, "Tanh"},         {ScalarOp::kSigmoid, "Sigmoid"},
        {ScalarOp::kSoftplus, "Softplus"}, {ScalarOp::kRelu, "Relu"},
        {ScalarOp::kAdd, "Add"},           {ScalarOp::kSubtract, "Sub"},
        {ScalarOp::kMultiply, "Mul"},      {ScalarOp::kDivide, "Div"},
        {ScalarOp::kMinimum, "Min"},       {ScalarOp::kMaximum, "Max"}};
    static const std::map<ScalarOp, std::string> comparisons = {
        {ScalarOp::kLess, "Less"},
        {ScalarOp::kLessEqual, "LessOrEqual"},
        {ScalarOp::kGreater, "Greater"},
        {ScalarOp::kGreaterEqual, "GreaterOrEqual"},
        {ScalarOp::kEqual, "Equal"}};
    if (const auto op = plain.find(instruction.op); op != plain.end()) {
      return Op(op->second, operands);
    }
    if (const auto op = comparisons.find(instruction.op);
        op != comparisons.end()) {
      return Cast(Op(op->second, operands), instruction.dtype);
    }
    const auto p = static_cast<float>(instruction.p);
    switch (instruction.op) {
      case ScalarOp::kCopy:
        return Cast(operands[0], instruction.dtype);
      case ScalarOp::kSquare:
        return Op("Mul", {operands[0], operands[0]});
      case ScalarOp::kLeakyRelu:
        return Op("LeakyRelu", operands, {{"alpha", p}});
      case ScalarOp::kElu:
        return Op("Elu", operands, {{"alpha", p}});
      case ScalarOp::kClip:
        return Op("Clip", {operands[0], Scalar(instruction.p, dtype),
                           Scalar(instruction.q, dtype)});
      case ScalarOp::kAffine:
        return Op("Add",
                  {Op("Mul", {operands[0], Scalar(instruction.p, dtype)}),
                   Scalar(instruction.q, dtype)});
      case ScalarOp::kNotEqual:
        return Cast(Op("Not", {Op("Equal", operands)}), instruction.dtype);
      case ScalarOp::kNot:
        return Cast(Op("Not", {Cast(operands[0], DType::kBool)}),
                    instruction.dtype);
      case ScalarOp::kAnd:
      case ScalarOp::kOr:
        return Cast(Op(instruction.op == ScalarOp::kAnd ? "And" : "Or",
                       {Cast(operands[0], DType::kBool),
                        Cast(operands[1], DType::kBool)}),
                    instruction.dtype);
      case ScalarOp::kSelect:
        return Op("Where",
                  {Cast(operands[0], DType::kBool), operands[1], operands[2]});
      default:
        // kModulo: ONNX rounds towards zero
        Fail("has no form in ONNX");
    }
  }

  const graph::Graph& graph_;
  const OnnxOptions& options_;
  OnnxModel model_;
  std::set<graph::NodeId> needed_;
  std::map<Endpoint, std::string> values_;
  const Node* node_ = nullptr;
  int64_t num_names_ = 0;
};

}  // namespace

std::string ToOnnx(const graph::Graph& graph, const OnnxOptions& options) {
  return Exporter(graph, options).Export();
}

}  // namespace replicant::exporting
