#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/tensor/host_tensor.h"
#include "engine/graph/graph.h"

// Graphs as ONNX models, for other runtimes.
namespace replicant::exporting {

// Version of the ONNX operator set in use.
inline constexpr int64_t kOnnxOpset = 18;

struct OnnxOptions {
  // of the graph inside the model
  std::string name = "replicant";
  // The results, with their names in the model. The inputs are the graph's, by
  // their names.
  std::vector<std::pair<std::string, graph::Output>> outputs;
  // Returns the value of a variable; it becomes a constant of the model.
  std::function<HostTensor(const std::string& name)> value_of;
  // Rows of a batch: first dimensions of this size become "batch", which may be
  // any number. It must differ from every other first dimension. 0: all sizes
  // are fixed.
  int64_t batch_size = 0;
  std::map<std::string, std::string> metadata;
};

// Returns the ONNX model that computes `outputs`. Images stay channels last at
// its inputs and outputs. Throws InvalidArgument, at the line that added it,
// for an op without a form in ONNX (those that train, and random numbers), and
// if rows of a batch are mixed.
std::string ToOnnx(const graph::Graph& graph, const OnnxOptions& options);

}  // namespace replicant::exporting
