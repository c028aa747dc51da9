// Lets a convolution convert bytes to its image while it reads them. The plan
// then needs no memory for the floats of NormalizePixels(), four times as large
// as the bytes, nor for the shifted bytes of RandomShift().
#include <optional>

#include "engine/graph/ops/conv.h"
#include "engine/graph/passes/rewriter.h"

namespace replicant::graph {
namespace {

// Returns the variant of `conv` that reads pixels; null if there is none.
const OpDef* PixelOpOf(const Node& conv) {
  if (conv.op->name == "Conv2d") return &PixelConv2dOp();
  if (conv.op->name == "Conv2dWeightGradient") {
    return &PixelConv2dWeightGradientOp();
  }
  return nullptr;
}

// The source of an image: scale * shifted bytes + offset.
struct Pixels {
  Endpoint bytes;
  // node -1: the bytes are not shifted
  Endpoint offsets;
  double scale = 1.0;
  double offset = 0.0;
};

class PixelFuser {
 public:
  PixelFuser(const Program& program, const TargetInfo& target)
      : program_(program),
        graph_(*program.graph),
        target_(target),
        order_(*program.graph) {}

  Program Run() {
    Rewriter rewriter(graph_);
    for (const Node& node : graph_.nodes()) {
      const OpDef* op = PixelOpOf(node);
      std::optional<Pixels> pixels;
      if (op != nullptr && target_.CanFusePixels(graph_, node)) {
        pixels = Find(node);
      }
      if (pixels) {
        Emit(node, op, *pixels, rewriter);
      } else {
        rewriter.Copy(node);
      }
    }
    return rewriter.Finish(program_);
  }

 private:
  // Returns the producer of the endpoint if it is `op` and may run as part of
  // `conv`; otherwise null. Other nodes may use it too.
  const Node* Producer(Endpoint endpoint, ScalarOp op, const Node& conv) const {
    const Node& node = graph_.node(endpoint.node);
    const ScalarProgram::Instruction* instruction = SingleInstruction(node);
    const bool is_it = instruction != nullptr && instruction->op == op &&
                       order_.MayJoin(node, conv);
    return is_it ? &node : nullptr;
  }

  // Matches Affine(Cast(bytes)), the form of NormalizePixels(), with or without
  // RandomShift() before it; in bf16 a rounding follows (passes/autocast.h).
  std::optional<Pixels> Find(const Node& conv) const {
    Endpoint image = conv.inputs[0];
    if (graph_.type(image).dtype == DType::kBF16) {
      const Node* rounding = Producer(image, ScalarOp::kCopy, conv);
      if (rounding == nullptr ||
          graph_.type(rounding->inputs[0]).dtype != DType::kF32) {
        return std::nullopt;
      }
      image = rounding->inputs[0];
    }
    const Node* affine = Producer(image, ScalarOp::kAffine, conv);
    if (affine == nullptr) return std::nullopt;
    const Node* cast = Producer(affine->inputs[0], ScalarOp::kCopy, conv);
    if (cast == nullptr || graph_.type(cast->inputs[0]).dtype != DType::kU8) {
      return std::nullopt;
    }
    const auto& scaling = *SingleInstruction(*affine);
    Pixels pixels{
        .bytes = cast->inputs[0], .scale = scaling.p, .offset = scaling.q};
    const Node& shift = graph_.node(pixels.bytes.node);
    if (shift.op->name == "RandomShift" && order_.MayJoin(shift, conv)) {
      pixels.bytes = shift.inputs[0];
      pixels.offsets = shift.inputs[1];
    }
    return pixels;
  }

  static void Emit(const Node& conv, const OpDef* op, const Pixels& pixels,
                   Rewriter& rewriter) {
    Graph::NodeSpec spec{.op = op,
                         .inputs = rewriter.MappedInputs(conv),
                         .attributes = conv.attributes,
                         .name = conv.name};
    spec.inputs[0] = rewriter.Mapped(pixels.bytes);
    spec.attributes.Set("scale", pixels.scale);
    spec.attributes.Set("offset", pixels.offset);
    if (pixels.offsets.node >= 0) {
      spec.inputs.push_back(rewriter.Mapped(pixels.offsets));
      spec.attributes.Set("is_shifted", true);
    }
    rewriter.Replace(conv, std::move(spec));
  }

  const Program& program_;
  const Graph& graph_;
  const TargetInfo& target_;
  VersionOrder order_;
};

}  // namespace

Program FusePixels(const Program& program, const TargetInfo& target) {
  return PixelFuser(program, target).Run();
}

}  // namespace replicant::graph
