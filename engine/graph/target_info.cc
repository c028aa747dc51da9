#include "engine/graph/target_info.h"

#include "base/check.h"

namespace replicant::graph {

LayoutChoice TargetInfo::ChooseLayouts(
    const Graph& /*graph*/, const Node& node,
    std::span<const Layout> /*offered*/) const {
  return {.inputs = std::vector<Layout>(node.inputs.size()),
          .outputs = std::vector<Layout>(node.outputs.size())};
}

size_t TargetInfo::SizeBytes(const TensorType& type) const {
  REPLICANT_CHECK(type.layout.is_row_major(),
                  "{}: a layout whose target does not give its size",
                  type.ToString());
  return static_cast<size_t>(type.shape.num_elements()) * DTypeSize(type.dtype);
}

}  // namespace replicant::graph
