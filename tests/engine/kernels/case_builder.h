#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/tensor/host_tensor.h"
#include "engine/graph/graph.h"

namespace replicant::testing {

// Builds the graph of one case in one floating dtype, and keeps the values of
// its inputs. Values are drawn in f32, so that both dtypes hold them exactly.
// With `stored` bf16, inputs are stored so and cast to f32: what a graph of f32
// finds behind ops that graph::Autocast() has put into bf16.
class CaseBuilder {
 public:
  explicit CaseBuilder(DType floating) : CaseBuilder(floating, floating) {}
  CaseBuilder(DType floating, DType stored)
      : floating_(floating), stored_(stored), graph_(/*seed=*/5) {}

  graph::Graph& graph() { return graph_; }
  DType floating() const { return floating_; }

  // Inputs that a gradient is taken of.
  graph::Output Normal(const Shape& shape);
  graph::Output Uniform(const Shape& shape, double low, double high);
  // Rows that sum to 1; no gradient is taken.
  graph::Output Distribution(int64_t rows, int64_t columns);
  // Whole numbers in [low, high); no gradient.
  graph::Output Whole(DType dtype, const Shape& shape, int64_t low,
                      int64_t high);
  // A variable with random values, and its newest version.
  graph::VariableId Variable(const Shape& shape, double low = -1.0,
                             double high = 1.0);

  // The inputs that a gradient is taken of.
  const std::vector<graph::Output>& differentiable() const {
    return differentiable_;
  }
  const std::vector<std::pair<std::string, HostTensor>>& values() const {
    return values_;
  }

 private:
  graph::Output Input(HostTensor value);

  DType floating_;
  DType stored_;
  graph::Graph graph_;
  std::vector<graph::Output> differentiable_;
  std::vector<std::pair<std::string, HostTensor>> values_;
};

}  // namespace replicant::testing
