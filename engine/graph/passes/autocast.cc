#include "engine/graph/passes/autocast.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/graph/ops/elementwise.h"
#include "engine/graph/passes/rewriter.h"

namespace replicant::graph {
namespace {

// How the pass treats an op: the rows of the table in autocast.h.
enum class Rule {
  kProduct,
  kElementwise,
  kLikeFirst,  // floating inputs get the first one's type
  kNorm,
  kConcat,
  kSum,
  kF32,
};

struct RuleOf {
  std::string_view op;
  Rule rule;
  // kNorm: numbers of the inputs with the type of x, x first; repeated to fill
  // the array.
  std::array<size_t, 3> images = {};
};

constexpr std::array kRules = {
    RuleOf{"Conv2d", Rule::kProduct},
    RuleOf{"Conv2dInputGradient", Rule::kProduct},
    RuleOf{"Conv2dWeightGradient", Rule::kProduct},
    RuleOf{"LayerNorm", Rule::kNorm, {0, 0, 0}},
    RuleOf{"LayerNormGradient", Rule::kNorm, {1, 0, 0}},
    RuleOf{"BatchNorm", Rule::kNorm, {0, 3, 3}},
    RuleOf{"BatchNormGradient", Rule::kNorm, {1, 0, 6}},
    RuleOf{"BatchNormApply", Rule::kNorm, {0, 4, 4}},
    RuleOf{"BatchNormApplyGradient", Rule::kNorm, {1, 0, 5}},
    RuleOf{"BatchMoments", Rule::kSum},
    RuleOf{"MaxPool2d", Rule::kLikeFirst},
    RuleOf{"MaxPool2dGradient", Rule::kLikeFirst},
    RuleOf{"AveragePool2d", Rule::kLikeFirst},
    RuleOf{"AveragePool2dGradient", Rule::kLikeFirst},
    RuleOf{"UpsampleNearest2d", Rule::kLikeFirst},
    RuleOf{"Reshape", Rule::kLikeFirst},
    RuleOf{"Transpose", Rule::kLikeFirst},
    RuleOf{"Slice", Rule::kLikeFirst},
    RuleOf{"Pad", Rule::kLikeFirst},
    RuleOf{"Identity", Rule::kLikeFirst},
    RuleOf{"StopGradient", Rule::kLikeFirst},
    RuleOf{"Concat", Rule::kConcat},
    RuleOf{"ReduceSum", Rule::kSum},
    RuleOf{"ReduceMean", Rule::kSum},
};

// Whether M, N and K of a MatMul are all larger than 1.
bool IsOfMatrices(const Graph& graph, const Node& matmul) {
  const Shape& a = graph.type(matmul.inputs[0]).shape;
  const Shape& c = matmul.output_type().shape;
  return a[0] > 1 && a[1] > 1 && c[0] > 1 && c[1] > 1;
}

class Autocaster {
 public:
  explicit Autocaster(const Program& program)
      : program_(program), graph_(*program.graph), rewriter_(graph_) {}

  Program Run() {
    for (const Node& node : graph_.nodes()) {
      if (node.inputs.empty()) {
        rewriter_.Copy(node);
      } else {
        Rewrite(node);
      }
    }
    // outputs have the dtypes of the source program
    for (const Output& output : program_.outputs) {
      const Output now = rewriter_.Mapped(output.endpoint());
      rewriter_.Map(output.endpoint(), As(now, output.dtype()));
    }
    return rewriter_.Finish(program_);
  }

 private:
  RuleOf Choose(const Node& node) const {
    constexpr RuleOf kStaysF32{"", Rule::kF32};
    // only f32 may change, and no update
    bool is_f32 = node.updates.empty();
    for (const TensorType& type : node.outputs) {
      is_f32 = is_f32 && (type.dtype == DType::kF32 || node.op->is_elementwise);
    }
    if (!is_f32) return kStaysF32;
    if (node.op->is_elementwise) return {"", Rule::kElementwise};
    if (node.op->name == "MatMul") {
      return IsOfMatrices(graph_, node) ? RuleOf{"", Rule::kProduct}
                                        : kStaysF32;
    }
    for (const RuleOf& row : kRules) {
      if (row.op == node.op->name) return row;
    }
    return kStaysF32;
  }

  void Rewrite(const Node& node) {
    std::vector<Output> inputs = rewriter_.MappedInputs(node);
    Attributes attributes = node.attributes;
    const RuleOf rule = Choose(node);
    switch (rule.rule) {
      case Rule::kElementwise:
        RewriteElementwise(node, std::move(inputs));
        return;
      case Rule::kProduct:
        for (Output& input : inputs) input = As(input, DType::kBF16);
        if (IsWeightGradient(node)) attributes.Set("f32_result", true);
        break;
      case Rule::kLikeFirst:
        for (Output& input : inputs) {
          if (IsFloating(input.dtype())) input = As(input, inputs[0].dtype());
        }
        break;
      case Rule::kNorm:
        RestoreBut(rule.images, inputs[rule.images[0]].dtype(), node, &inputs);
        break;
      case Rule::kConcat:
        ToCommonType(node, &inputs);
        break;
      case Rule::kSum:
        if (inputs[0].dtype() == DType::kBF16) {
          attributes.Set("f32_result", true);
        }
        break;
      case Rule::kF32:
        RestoreBut({}, DType::kF32, node, &inputs);
        break;
    }
    Replace(node, node.op, std::move(inputs), std::move(attributes));
  }

  // A weight's gradient is a sum over the batch: it stays f32, as accumulated.
  static bool IsWeightGradient(const Node& node) {
    return node.op->name == "Conv2dWeightGradient" ||
           (node.op->name == "MatMul" && node.attributes.Bool("transpose_a"));
  }

  // Casts the inputs with these numbers to `dtype`, all others back to their
  // dtype in the source program.
  void RestoreBut(std::span<const size_t> numbers, DType dtype,
                  const Node& node, std::vector<Output>* inputs) {
    for (size_t i = 0; i < inputs->size(); ++i) {
      const bool is_named =
          std::find(numbers.begin(), numbers.end(), i) != numbers.end();
      (*inputs)[i] = As((*inputs)[i],
                        is_named ? dtype : graph_.type(node.inputs[i]).dtype);
    }
  }

  // Casts all inputs back unless all of them are bf16.
  void ToCommonType(const Node& node, std::vector<Output>* inputs) {
    for (const Output& input : *inputs) {
      if (input.dtype() != DType::kBF16) {
        RestoreBut({}, DType::kF32, node, inputs);
        return;
      }
    }
  }

  // Stores the result in bf16 if the floating inputs of its size are all bf16.
  // The node becomes a fused one, whose inputs may differ in dtype.
  void RewriteElementwise(const Node& node, std::vector<Output> inputs) {
    const TensorType& output = node.output_type();
    // do dtypes differ from the source, and which have inputs of full size?
    bool is_same = true;
    bool has_bf16 = false;
    bool has_other = false;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const TensorType& type = inputs[i].type();
      is_same = is_same && type.dtype == graph_.type(node.inputs[i]).dtype;
      if (!IsFloating(type.dtype) ||
          type.shape.num_elements() != output.shape.num_elements()) {
        continue;
      }
      (type.dtype == DType::kBF16 ? has_bf16 : has_other) = true;
    }
    const bool becomes_bf16 =
        output.dtype == DType::kF32 && has_bf16 && !has_other;
    if (is_same && !becomes_bf16) {
      Replace(node, node.op, std::move(inputs), node.attributes);
      return;
    }
    ScalarProgram program = node.attributes.Program("program");
    // a cast of bf16 to f32 that becomes bf16 again is the tensor itself
    const bool is_copy = program.instructions.size() == 1 &&
                         program.instructions[0].op == ScalarOp::kCopy;
    if (becomes_bf16 && is_copy && inputs[0].shape() == output.shape) {
      rewriter_.Map({node.id, 0}, inputs[0]);
      return;
    }
    if (becomes_bf16) {
      for (ScalarProgram::Instruction& instruction : program.instructions) {
        if (instruction.dtype == DType::kF32) {
          instruction.dtype = DType::kBF16;
        }
      }
    }
    const auto dims = output.shape.dims();
    // the single op would refuse operands of two dtypes
    Replace(node, &FusedElementwiseOp(), std::move(inputs),
            {{"program", program},
             {"shape", std::vector<int64_t>(dims.begin(), dims.end())}});
  }

  void Replace(const Node& node, const OpDef* op, std::vector<Output> inputs,
               Attributes attributes) {
    rewriter_.Replace(node, {.op = op,
                             .inputs = std::move(inputs),
                             .attributes = std::move(attributes),
                             .updates = node.updates,
                             .name = node.name,
                             .constant = node.constant});
  }

  // Returns x as `dtype`. All users of a tensor share one Cast.
  Output As(const Output& x, DType dtype) {
    if (x.dtype() == dtype || !IsFloating(x.dtype())) return x;
    const auto [place, is_new] = casts_.try_emplace(x.endpoint());
    if (is_new) place->second = Cast(x, dtype, x.producer().site);
    return place->second;
  }

  const Program& program_;
  const Graph& graph_;
  Rewriter rewriter_;
  // by tensor: its cast to the other of f32 and bf16
  std::map<Endpoint, Output> casts_;
};

}  // namespace

Program Autocast(const Program& program) { return Autocaster(program).Run(); }

}  // namespace replicant::graph
