#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/graph/graph.h"
#include "engine/kernels/backend.h"
#include "engine/runtime/executor.h"
#include "engine/runtime/variable_store.h"
#include "tests/support/tensor_values.h"

namespace replicant::testing {

// A graph with values for its inputs, to be run once, for tests of ops.
class GraphRunner {
 public:
  explicit GraphRunner(const std::string& backend = "reference",
                       uint64_t seed = 0);

  graph::Graph& graph() { return graph_; }
  runtime::VariableStore& store() { return *store_; }

  // An input of the graph with its value.
  graph::Output Input(const std::string& name, HostTensor value);

  // Value of `output` as doubles.
  std::vector<double> Eval(graph::Output output);
  HostTensor EvalTensor(graph::Output output,
                        const runtime::CompileOptions& options = {});

  // A plan with the inputs filled.
  std::unique_ptr<runtime::Executor> Compile(
      const runtime::PlanSpec& spec,
      const runtime::CompileOptions& options = {});

  // The largest difference between the symbolic gradient of
  //   loss = sum_i w_i * output_i,   w fixed random weights in [-1, 1],
  // with respect to any element of `wrt` (inputs of this runner, f64) and the
  // central difference (loss(x + step) - loss(x - step)) / (2 step), divided by
  // the largest gradient or 1, whichever is larger.
  double MaxGradientError(graph::Output output,
                          const std::vector<graph::Output>& wrt,
                          double step = 1e-5);

 private:
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<runtime::VariableStore> store_;
  graph::Graph graph_;
  std::map<std::string, HostTensor> values_;
};

// Tolerance of MaxGradientError() at step 1e-5 for functions whose value,
// gradient and third derivative are of order 1 to 100. Two errors add up:
// truncation, step^2 / 6 * f''' < 2e-9, and rounding of the difference,
// 2^-52 * |f| / step < 2.3e-9.
inline constexpr double kGradientTolerance = 1e-8;

}  // namespace replicant::testing
