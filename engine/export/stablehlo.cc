#include "engine/export/stablehlo.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "engine/export/stablehlo_draws.h"
#include "engine/graph/passes/autocast.h"

namespace replicant::exporting {
namespace {

using graph::Endpoint;
using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::VariableId;
using Argument = StableHloArgument;
using Result = StableHloResult;

const StableHloForms& OwnForms() {
  static const StableHloForms forms = [] {
    StableHloForms own;
    AddShapeForms(own);
    AddRowForms(own);
    AddImageForms(own);
    AddNormForms(own);
    AddUpdateForms(own);
    return own;
  }();
  return forms;
}

// Translates one program.
class Translator {
 public:
  Translator(const graph::Program& program, const StableHloOptions& options)
      : program_(program),
        graph_(*program.graph),
        options_(options),
        builder_(options.num_replicas),
        is_needed_(graph_.nodes().size(), false),
        is_local_(graph_.nodes().size(), false) {}

  StableHloModule Run() {
    REPLICANT_CHECK(options_.output_names.size() == program_.outputs.size(),
                    "{} names of {} outputs", options_.output_names.size(),
                    program_.outputs.size());
    FindNeeded();
    AddArguments();
    for (const Node& node : graph_.nodes()) {
      if (is_needed_[Index(node)]) Write(node);
    }
    AddResults();
    module_.num_replicas = options_.num_replicas;
    module_.text = Text();
    module_.draws = ExtractDraws(graph_, draws_, is_needed_);
    return std::move(module_);
  }

 private:
  static size_t Index(const Node& node) { return static_cast<size_t>(node.id); }

  void FindNeeded() {
    for (const auto* list : {&program_.outputs, &program_.updates}) {
      for (const graph::Output& output : *list) {
        is_needed_[static_cast<size_t>(output.node)] = true;
      }
    }
    // users come after their inputs
    for (size_t id = is_needed_.size(); id-- > 0;) {
      if (!is_needed_[id]) continue;
      for (const Endpoint input : graph_.nodes()[id].inputs) {
        is_needed_[static_cast<size_t>(input.node)] = true;
      }
    }
  }

  // --- arguments ---

  void AddArguments() {
    std::map<VariableId, const Node*> reads;
    for (const Node& node : graph_.nodes()) {
      if (node.op == &graph::VariableOp() && is_needed_[Index(node)]) {
        reads[static_cast<VariableId>(node.attributes.Int("variable"))] = &node;
      }
    }
    for (const auto& [variable, node] : reads) {
      const graph::VariableSpec& spec = graph_.variable(variable);
      AddArgument(*node, Argument::Kind::kVariable, spec.name,
                  !spec.is_trainable &&
                      spec.agreement == graph::ReplicaAgreement::kPerReplica);
      argument_of_[variable] = module_.arguments.size() - 1;
    }
    for (const Node& node : graph_.nodes()) {
      if (node.op == &graph::InputOp()) {
        AddArgument(node, Argument::Kind::kInput, node.name, true);
      }
    }
    for (const Node& node : graph_.nodes()) {
      if (!is_needed_[Index(node)] || !IsDraw(node)) continue;
      AddArgument(node, Argument::Kind::kDraw, node.name, true);
      module_.arguments.back().draw = draws_.size();
      draws_.push_back(node.id);
    }
  }

  void AddArgument(const Node& node, Argument::Kind kind,
                   const std::string& name, bool is_per_replica) {
    const graph::TensorType& type = node.output_type();
    values_[{node.id, 0}] = {fmt::format("%arg{}", module_.arguments.size()),
                             type.dtype, type.shape};
    is_local_[Index(node)] = is_per_replica;
    module_.arguments.push_back({.kind = kind,
                                 .name = name,
                                 .dtype = type.dtype,
                                 .shape = type.shape,
                                 .is_per_replica = is_per_replica});
  }

  // --- nodes ---

  void Write(const Node& node) {
    if (values_.contains({node.id, 0})) return;  // an argument
    HloValues inputs;
    bool is_local = false;
    for (const Endpoint input : node.inputs) {
      inputs.push_back(values_.at(input));
      is_local = is_local || is_local_[static_cast<size_t>(input.node)];
    }
    const StableHloNode translated{.node = node, .inputs = inputs};
    const StableHloForm& form = FormOf(translated);
    builder_.SetLocation(node.name);
    const HloValues outputs = form.write(builder_, translated);
    REPLICANT_CHECK(outputs.size() == node.outputs.size(),
                    "{} outputs of {} '{}', wrote {}", node.outputs.size(),
                    node.op->name, node.name, outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      const graph::TensorType wanted = node.outputs[i];
      REPLICANT_CHECK(
          outputs[i].dtype == wanted.dtype && outputs[i].shape == wanted.shape,
          "output {} of {} '{}' is {}, expected {}", i, node.op->name,
          node.name, MlirTensor(outputs[i].dtype, outputs[i].shape),
          wanted.ToString());
      values_[{node.id, static_cast<int32_t>(i)}] = outputs[i];
    }
    using Locality = StableHloForm::Locality;
    is_local_[Index(node)] = form.locality == Locality::kPerReplica ||
                             (form.locality == Locality::kAsInputs && is_local);
  }

  const StableHloForm& FormOf(const StableHloNode& n) const {
    static const StableHloForm elementwise{&WriteElementwise};
    if (n.node.op->is_elementwise) return elementwise;
    const std::string_view op = n.node.op->name;
    if (n.attributes().Has("activation")) {
      n.Fail(
          "has an activation that a pass fused; hint: export the program as it "
          "was before the passes");
    }
    if (const auto own = OwnForms().find(op); own != OwnForms().end()) {
      return own->second;
    }
    if (const auto other = options_.forms.find(op);
        other != options_.forms.end()) {
      return other->second;
    }
    std::vector<std::string> known = StableHloOps();
    for (const auto& [name, form] : options_.forms) known.emplace_back(name);
    std::ranges::sort(known);
    n.Fail(fmt::format("has no form in StableHLO; allowed: elementwise ops, {}",
                       fmt::join(known, ", ")));
  }

  // --- results ---

  void AddResults() {
    std::map<VariableId, Endpoint> newest;
    for (const Node& node : graph_.nodes()) {
      if (!is_needed_[Index(node)]) continue;
      for (size_t i = 0; i < node.updates.size(); ++i) {
        newest[node.updates[i]] = {node.id, static_cast<int32_t>(i)};
      }
    }
    for (const auto& [variable, endpoint] : newest) {
      module_.arguments[argument_of_.at(variable)].aliased_result =
          module_.results.size();
      AddResult(Result::Kind::kVariable, graph_.variable(variable).name,
                endpoint);
    }
    for (size_t i = 0; i < program_.outputs.size(); ++i) {
      AddResult(Result::Kind::kOutput, options_.output_names[i],
                program_.outputs[i].endpoint());
    }
  }

  void AddResult(Result::Kind kind, const std::string& name,
                 Endpoint endpoint) {
    const HloValue& value = values_.at(endpoint);
    results_.push_back(value.name);
    module_.results.push_back(
        {.kind = kind,
         .name = name,
         .dtype = value.dtype,
         .shape = value.shape,
         .is_per_replica = is_local_[static_cast<size_t>(endpoint.node)]});
  }

  std::string Text() const {
    std::vector<std::string> arguments, types;
    for (size_t i = 0; i < module_.arguments.size(); ++i) {
      const Argument& argument = module_.arguments[i];
      std::string text = fmt::format(
          "%arg{}: {}", i, MlirTensor(argument.dtype, argument.shape));
      if (argument.aliased_result) {
        text += fmt::format(" {{tf.aliasing_output = {} : i32}}",
                            *argument.aliased_result);
      }
      arguments.push_back(
          fmt::format("{} loc({})", text, MlirString(argument.name)));
    }
    for (const Result& result : module_.results) {
      types.push_back(MlirTensor(result.dtype, result.shape));
    }
    return fmt::format(
        "// StableHLO {}\n"
        "module @{} attributes {{mhlo.num_partitions = 1 : i32, "
        "mhlo.num_replicas = {} : i32}} {{\n"
        "  func.func public @main(\n      {}) -> (\n      {}) {{\n"
        "{}    return {} : {}\n  }}\n}}\n",
        kStableHloVersion, options_.name, options_.num_replicas,
        fmt::join(arguments, ",\n      "), fmt::join(types, ",\n      "),
        builder_.text(), fmt::join(results_, ", "), fmt::join(types, ", "));
  }

  const graph::Program& program_;
  const Graph& graph_;
  const StableHloOptions& options_;
  HloBuilder builder_;
  std::vector<bool> is_needed_;
  // by node: whether replicas have different values
  std::vector<bool> is_local_;
  std::map<Endpoint, HloValue> values_;
  std::map<VariableId, size_t> argument_of_;
  std::vector<NodeId> draws_;
  std::vector<std::string> results_;
  StableHloModule module_;
};

}  // namespace

void StableHloNode::Fail(std::string_view why) const {
  throw InvalidArgument(fmt::format("{}: {} '{}' {}", node.site.ToString(),
                                    node.op->name, node.name, why));
}

std::string_view ProductPrecision(DType dtype) {
  return dtype == DType::kBF16
             ? "precision_config = [#stablehlo<precision DEFAULT>, "
               "#stablehlo<precision DEFAULT>]"
             : "precision_config = [#stablehlo<precision HIGHEST>, "
               "#stablehlo<precision HIGHEST>]";
}

StableHloModule ToStableHlo(const graph::Program& program,
                            const StableHloOptions& options) {
  if (options.precision == graph::Precision::kF32 ||
      options.precision == graph::Precision::kAuto) {
    return Translator(program, options).Run();
  }
  if (options.precision == graph::Precision::kTF32) {
    throw InvalidArgument(
        "StableHLO: only backend cuda has precision tf32; allowed: f32, bf16");
  }
  const graph::Program cast = graph::Autocast(program);
  return Translator(cast, options).Run();
}

std::vector<std::string> StableHloOps() {
  std::vector<std::string> names;
  for (const auto& [name, form] : OwnForms()) names.emplace_back(name);
  for (const char* name :
       {"Input", "RandomInt", "RandomNormal", "RandomUniform", "Variable"}) {
    names.emplace_back(name);
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace replicant::exporting
