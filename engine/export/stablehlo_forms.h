#pragma once

#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "engine/export/stablehlo_builder.h"
#include "engine/graph/graph.h"

namespace replicant::exporting {

// A node under translation.
struct StableHloNode {
  const HloValue& input(size_t i) const { return inputs[i]; }
  const graph::TensorType& type(int output = 0) const {
    return node.output_type(output);
  }
  const graph::Attributes& attributes() const { return node.attributes; }
  // Throws InvalidArgument "<file:line>: <op> '<name>' <why>".
  [[noreturn]] void Fail(std::string_view why) const;

  const graph::Node& node;
  // One for each of the node's inputs.
  std::span<const HloValue> inputs;
};

using HloValues = std::vector<HloValue>;

// The translation of an op to StableHLO. The ops compute in at least f32 and
// round each result once, to the graph's type for it.
struct StableHloForm {
  // Adds the ops that compute the node and returns its outputs, all of them.
  using WriteFn = HloValues (*)(HloBuilder&, const StableHloNode&);
  // Whether replicas have different results.
  enum class Locality {
    kAsInputs,    // if an input differs
    kReplicated,  // never
    kPerReplica   // always
  };

  WriteFn write = nullptr;
  Locality locality = Locality::kAsInputs;
};

// By name of the op (OpDef::name). An op of engine/graph cannot be given
// another form.
using StableHloForms = std::map<std::string_view, StableHloForm>;

// The attribute of products of `dtype`: f32 is f32 on every device, where XLA's
// default may round it to bf16 or TF32.
std::string_view ProductPrecision(DType dtype);

// --- the forms of engine/graph's ops, a file each ---

// The scalar program of any elementwise op.
HloValues WriteElementwise(HloBuilder& builder, const StableHloNode& node);
// Moves of elements, sums, indices.
void AddShapeForms(StableHloForms& forms);
// Matrix products, softmax, losses.
void AddRowForms(StableHloForms& forms);
// Convolutions, pools, upsampling.
void AddImageForms(StableHloForms& forms);
void AddNormForms(StableHloForms& forms);
// Assignments and optimizers.
void AddUpdateForms(StableHloForms& forms);

}  // namespace replicant::exporting
