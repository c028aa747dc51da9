// Saves passes over memory around batch norms.
//
// 1. A norm whose relu follows a residual, as at the end of a residual block.
// The gradient of such a norm finds the relu's mask in y and stores the
// gradient before the relu, dz. Its dy is the sum of two parts where y goes to
// the next block's convolution and to its residual. The residual is another
// batch norm's result where a block changes the number of channels. Here
//
// - BatchNorm stores the mask as bits, which the gradient reads in place of y;
// - BatchNormGradient reads both parts of dy: the sum is never in memory;
// - BatchNorm computes the residual's norm as well, whose y is never in memory
//   and of which a BatchStatistics is left, and BatchNormGradient the gradients
//   of both norms from one reading of dz.
//
// 2. A norm with a relu and a max pool behind it, as at the start of a ResNet:
//   BatchNorm stores the pool's result and the places of the maxima. Its y is
//   never in memory, and MaxPool2dGradient reads the places.
//
// None changes a bit: what is not stored is rounded as if it were.
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/graph/ops/norm.h"
#include "engine/graph/ops/pool.h"
#include "engine/graph/passes/rewriter.h"

namespace replicant::graph {
namespace {

// Whether the mask's bytes belong to one row of channels each.
bool HasWholeBytes(const TensorType& y) {
  const int64_t channels = y.shape[y.shape.rank() - 1];
  return channels * static_cast<int64_t>(DTypeSize(y.dtype)) % 16 == 0;
}

class NormFuser {
 public:
  NormFuser(const Program& program, const TargetInfo& target)
      : program_(program),
        graph_(*program.graph),
        target_(target),
        uses_(program),
        order_(*program.graph) {
    for (const Node& node : graph_.nodes()) {
      for (const Endpoint& input : node.inputs) users_[input].push_back(&node);
    }
  }

  Program Run() {
    for (const Node& node : graph_.nodes()) {
      if (!target_.CanFuseBatchNorm(graph_, node)) continue;
      if (node.op->name == "BatchNorm") {
        FindResidualNorm(node);
        FindPool(node);
      } else if (node.op->name == "BatchNormGradient") {
        if (node.inputs.size() == 7) {
          gradients_[node.id] = {};
          FindMask(node);
          FindSum(node);
        } else {
          FindResidualGradient(node);
        }
      }
    }
    Rewriter rewriter(graph_);
    for (const Node& node : graph_.nodes()) {
      if (absorbed_.contains(node.id)) continue;
      if (residual_norms_.contains(node.id)) {
        EmitStatistics(node, rewriter);
      } else if (norms_.contains(node.id)) {
        EmitNorm(node, norms_[node.id], rewriter);
      } else if (gradients_.contains(node.id)) {
        EmitGradient(node, gradients_[node.id], rewriter);
      } else if (pool_gradients_.contains(node.id)) {
        EmitPoolGradient(node, rewriter);
      } else {
        rewriter.Copy(node);
      }
    }
    return rewriter.Finish(program_);
  }

 private:
  struct NormFusion {
    bool has_mask = false;
    // the residual's norm; null: none
    const Node* residual = nullptr;
    // the pool behind the relu; null: none
    const Node* pool = nullptr;
  };
  struct GradientFusion {
    bool has_mask = false;
    // the Add in front of dy; null: none
    const Node* sum = nullptr;
    // the gradient of the residual's norm; null: none
    const Node* residual = nullptr;
  };

  // Whether the norm, or the norm of a gradient, ends with y: nothing follows,
  // and all examples share gamma, input `gamma`.
  bool IsPlain(const Node& norm, size_t gamma) const {
    return !norm.attributes.Bool("relu") &&
           !norm.attributes.Has("activation") &&
           graph_.type(norm.inputs[gamma]).shape.rank() == 1;
  }

  void FindResidualNorm(const Node& norm) {
    if (norm.inputs.size() != 4 || !norm.attributes.Bool("relu") ||
        graph_.type(norm.inputs[1]).shape.rank() != 1) {
      return;
    }
    const Endpoint y = norm.inputs[3];
    const Node& residual = graph_.node(y.node);
    if (residual.op->name != "BatchNorm" || y.index != 0 ||
        residual.inputs.size() != 3 || !IsPlain(residual, /*gamma=*/1) ||
        graph_.type(residual.inputs[1]) != graph_.type(norm.inputs[1]) ||
        uses_.of(y) != 1 || !order_.MayJoin(residual, norm) ||
        residual.outputs[1] != StatisticsOf(residual)) {
      return;
    }
    residual_norms_.insert(residual.id);
    norms_[norm.id].residual = &residual;
  }
  // The type of BatchStatistics of a norm's x.
  TensorType StatisticsOf(const Node& norm) const {
    const DType dtype = norm.outputs[0].dtype;
    return {dtype == DType::kBF16 ? DType::kF32 : dtype, norm.outputs[1].shape};
  }

  // Finds the pool that alone reads y, with its gradient.
  void FindPool(const Node& norm) {
    const Endpoint y{norm.id, 0};
    const auto users = users_.find(y);
    if (norm.inputs.size() != 3 || !norm.attributes.Bool("relu") ||
        norm.attributes.Has("activation") || users == users_.end() ||
        uses_.of(y) != 2 || users->second.size() != 2 ||
        graph_.type(norm.inputs[1]).shape.rank() != 1) {
      return;
    }
    const Node& pool = *users->second[0];
    const Node& gradient = *users->second[1];
    if (pool.op->name != "MaxPool2d" ||
        gradient.op->name != "MaxPool2dGradient" ||
        gradient.attributes != pool.attributes ||
        pool.attributes.Int("window") > kMaxBytePlaceWindow) {
      return;
    }
    norms_[norm.id].pool = &pool;
    absorbed_.insert(pool.id);
    pool_gradients_.insert(gradient.id);
  }

  // Finds the gradient whose dz is the dy of a residual's norm, `gradient`.
  void FindResidualGradient(const Node& gradient) {
    const Endpoint dz = gradient.inputs[0];
    const auto fusion = gradients_.find(dz.node);
    if (gradient.inputs.size() != 6 || !IsPlain(gradient, /*gamma=*/2) ||
        fusion == gradients_.end() || dz.index != 3 || uses_.of(dz) != 1) {
      return;
    }
    const Node& first = graph_.node(dz.node);
    if (graph_.type(gradient.inputs[2]) != graph_.type(first.inputs[2])) return;
    // it will be computed in the place of the first
    for (size_t i = 1; i < gradient.inputs.size(); ++i) {
      if (gradient.inputs[i].node > first.id) return;
    }
    absorbed_.insert(gradient.id);
    fusion->second.residual = &gradient;
  }

  void FindMask(const Node& gradient) {
    const Endpoint y = gradient.inputs[6];
    const Node& norm = graph_.node(y.node);
    // an activation would hide y
    if (norm.op->name != "BatchNorm" || y.index != 0 ||
        norm.attributes.Has("activation") || !HasWholeBytes(graph_.type(y)) ||
        !target_.CanFuseBatchNorm(graph_, norm)) {
      return;
    }
    norms_[norm.id].has_mask = true;
    gradients_[gradient.id].has_mask = true;
  }

  void FindSum(const Node& gradient) {
    const Endpoint dy = gradient.inputs[0];
    const Node& add = graph_.node(dy.node);
    const ScalarProgram::Instruction* instruction = SingleInstruction(add);
    if (instruction == nullptr || instruction->op != ScalarOp::kAdd ||
        add.inputs.size() != 2 || uses_.of(dy) != 1 ||
        !order_.MayJoin(add, gradient)) {
      return;
    }
    for (const Endpoint& part : add.inputs) {
      if (graph_.type(part) != graph_.type(dy)) return;
    }
    absorbed_.insert(add.id);
    gradients_[gradient.id].sum = &add;
  }

  static void EmitStatistics(const Node& norm, Rewriter& rewriter) {
    Graph& graph = rewriter.graph();
    const Graph::DeviceScope device(graph, norm.device);
    const Output mean = graph.Add({.op = &BatchStatisticsOp(),
                                   .inputs = {rewriter.Mapped(norm.inputs[0])},
                                   .name = norm.name},
                                  norm.site);
    rewriter.Map({norm.id, 1}, mean);
    rewriter.Map({norm.id, 2}, Graph::OutputOf(mean, 1));
  }

  void EmitNorm(const Node& norm, const NormFusion& fusion,
                Rewriter& rewriter) {
    std::vector<Endpoint> inputs = norm.inputs;
    Attributes attributes = norm.attributes;
    if (fusion.has_mask) attributes.Set("mask", true);
    if (fusion.residual != nullptr) {
      const Node& residual = *fusion.residual;
      inputs.pop_back();
      inputs.insert(inputs.end(), residual.inputs.begin(),
                    residual.inputs.end());
      inputs.insert(inputs.end(), {{residual.id, 1}, {residual.id, 2}});
      attributes.Set("residual_epsilon", residual.attributes.Float("epsilon"));
    }
    if (fusion.pool != nullptr) {
      for (const char* option : {"window", "stride", "padding"}) {
        attributes.Set(std::string("pool_") + option,
                       fusion.pool->attributes.Int(option));
      }
    }
    const Output y =
        Emit(norm, inputs, std::move(attributes), /*mask=*/-1, rewriter);
    if (fusion.has_mask) masks_[norm.id] = Graph::OutputOf(y, 3);
    if (fusion.pool != nullptr) {
      rewriter.Map({fusion.pool->id, 0}, y);
      places_[norm.id] = Graph::OutputOf(y, 3);
    }
  }

  void EmitPoolGradient(const Node& gradient, Rewriter& rewriter) {
    Graph::NodeSpec spec{.op = gradient.op,
                         .inputs = {places_.at(gradient.inputs[0].node),
                                    rewriter.Mapped(gradient.inputs[1])},
                         .attributes = gradient.attributes,
                         .name = gradient.name};
    const auto image = gradient.output_type().shape.dims();
    spec.attributes.Set("image",
                        std::vector<int64_t>(image.begin(), image.end()));
    rewriter.Replace(gradient, std::move(spec));
  }

  void EmitGradient(const Node& gradient, const GradientFusion& fusion,
                    Rewriter& rewriter) {
    std::vector<Endpoint> inputs = gradient.inputs;
    Attributes attributes = gradient.attributes;
    if (fusion.has_mask) attributes.Set("mask", true);
    if (fusion.sum != nullptr) {
      inputs[0] = fusion.sum->inputs[0];
      inputs.push_back(fusion.sum->inputs[1]);
      attributes.Set("second_dy", true);
    }
    if (fusion.residual != nullptr) {
      const Node& residual = *fusion.residual;
      for (const size_t i : {1U, 2U, 4U, 5U})
        inputs.push_back(residual.inputs[i]);
      attributes.Set("residual_epsilon", residual.attributes.Float("epsilon"));
    }
    const Output first = Emit(gradient, inputs, std::move(attributes),
                              fusion.has_mask ? 6 : -1, rewriter);
    for (int i = 0; fusion.residual != nullptr && i < 3; ++i) {
      rewriter.Map({fusion.residual->id, i}, Graph::OutputOf(first, 4 + i));
    }
  }

  // Adds `node` with these inputs and attributes. Input `mask` becomes the mask
  // of the norm that has it as result.
  Output Emit(const Node& node, const std::vector<Endpoint>& inputs,
              Attributes attributes, int mask, Rewriter& rewriter) const {
    Graph::NodeSpec spec{
        .op = node.op, .attributes = std::move(attributes), .name = node.name};
    for (size_t i = 0; i < inputs.size(); ++i) {
      spec.inputs.push_back(static_cast<int>(i) == mask
                                ? masks_.at(inputs[i].node)
                                : rewriter.Mapped(inputs[i]));
    }
    return rewriter.Replace(node, std::move(spec));
  }

  const Program& program_;
  const Graph& graph_;
  const TargetInfo& target_;
  UseCounts uses_;
  VersionOrder order_;
  std::map<Endpoint, std::vector<const Node*>> users_;
  std::map<NodeId, NormFusion> norms_;
  std::map<NodeId, GradientFusion> gradients_;
  // norms of which the statistics are left
  std::set<NodeId> residual_norms_;
  // sums, gradients and pools that other nodes compute
  std::set<NodeId> absorbed_;
  std::set<NodeId> pool_gradients_;
  // by norm, in the target
  std::map<NodeId, Output> masks_, places_;
};

}  // namespace

Program FuseNorms(const Program& program, const TargetInfo& target) {
  return NormFuser(program, target).Run();
}

}  // namespace replicant::graph
