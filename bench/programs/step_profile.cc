#include "bench/programs/step_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <utility>

namespace replicant::learner {

std::map<std::string, double> GigaFlopOfNodes(const probe::StepGraph& workload,
                                              const runtime::PlanSpec& spec,
                                              const graph::TargetInfo& target) {
  const graph::Program program = graph::RunPasses(
      graph::ExtractProgram(*workload.graph, spec.outputs, spec.updates),
      target,
      {.off = {"fold", "fuse_epilogue", "fuse_pixels", "fuse_elementwise"}});
  const graph::Graph& g = *program.graph;
  std::map<std::string, double> gflop;
  for (const graph::Node& node : g.nodes()) {
    const auto elements = [&](size_t input) {
      return static_cast<double>(
          g.type(node.inputs[input]).shape.num_elements());
    };
    const auto outputs = static_cast<double>(
        node.outputs.empty() ? 0 : node.output_type().shape.num_elements());
    double flop = 0.0;
    if (node.op->name == "MatMul") {
      // sqrt of (M K)(K N)(M N) is M K N
      flop = 2.0 * std::sqrt(elements(0) * elements(1) * outputs);
    } else if (node.op->name == "Conv2d" ||
               node.op->name == "Conv2dInputGradient") {
      // positions of the output image times the weights
      const graph::TensorType& w = g.type(node.inputs[1]);
      const double positions =
          (node.op->name == "Conv2d" ? outputs : elements(0)) /
          static_cast<double>(w.shape[0]);
      flop = 2.0 * positions * static_cast<double>(w.shape.num_elements());
    } else if (node.op->name == "Conv2dWeightGradient") {
      const graph::TensorType& dw = node.output_type();
      flop = 2.0 * elements(1) / static_cast<double>(dw.shape[0]) *
             static_cast<double>(dw.shape.num_elements());
    }
    if (flop > 0.0) gflop[node.name] = flop * 1e-9;
  }
  return gflop;
}

void PrintProfile(const std::vector<runtime::KernelProfile>& profile,
                  const std::map<std::string, double>& gflop_of_nodes) {
  struct Sum {
    double ms = 0.0;
    double gflop = 0.0;
  };
  Sum all;
  const auto print = [&](const Sum& sum, const std::string& op,
                         const std::string& name) {
    const std::string rate =
        sum.gflop == 0.0 ? ""
                         : fmt::format("{:.2f} GFLOP, {:.0f} GFLOP/s",
                                       sum.gflop, sum.gflop / (sum.ms * 1e-3));
    fmt::print(stderr, "{:8.4f} ms {:5.1f} %  {:26} {:22} {}\n", sum.ms,
               100.0 * sum.ms / all.ms, rate, op, name);
  };
  std::map<std::string, Sum> kinds;
  std::vector<Sum> kernels;
  for (const auto& kernel : profile) {
    const auto node = gflop_of_nodes.find(kernel.name);
    kernels.push_back(
        {.ms = kernel.mean_ms,
         .gflop = node == gflop_of_nodes.end() ? 0.0 : node->second});
    for (Sum* sum : {&all, &kinds[kernel.op]}) {
      sum->ms += kernels.back().ms;
      sum->gflop += kernels.back().gflop;
    }
  }
  std::vector<std::pair<std::string, Sum>> sums(kinds.begin(), kinds.end());
  std::ranges::sort(sums, std::greater<>(),
                    [](const auto& kind) { return kind.second.ms; });
  for (const auto& [op, sum] : sums) print(sum, op, "all");
  for (size_t i = 0; i < profile.size(); ++i) {
    print(kernels[i], profile[i].op, profile[i].name);
  }
}

}  // namespace replicant::learner
