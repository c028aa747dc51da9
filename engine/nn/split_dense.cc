#include "engine/nn/split_dense.h"

#include <fmt/format.h>

#include "base/error.h"
#include "engine/graph/ops/elementwise.h"

namespace replicant::nn {
namespace {

// The size of a part.
int64_t Divide(const char* layer, const std::string& name, int64_t size,
               int num_devices, CallSite site) {
  if (num_devices < 1 || size % num_devices != 0) {
    throw InvalidArgument(fmt::format(
        "{}: {} '{}': {} units cannot be divided evenly among {} devices",
        site.ToString(), layer, name, size, num_devices));
  }
  return size / num_devices;
}

// PyTorch's default of a layer with so many inputs, whatever the part has.
LayerOptions WithDefaults(LayerOptions options, int64_t in) {
  const double bound = 1.0 / std::sqrt(static_cast<double>(in));
  if (!options.weight) options.weight = Uniform(-bound, bound);
  if (!options.bias) options.bias = Uniform(-bound, bound);
  return options;
}

}  // namespace

ColumnDense::ColumnDense(Graph& graph, const std::string& name, int64_t in,
                         int64_t out, int num_devices,
                         const LayerOptions& options, CallSite site) {
  const int64_t size = Divide("ColumnDense", name, out, num_devices, site);
  const Graph::Scope scope(graph, name);
  for (int i = 0; i < num_devices; ++i) {
    parts_.emplace_back(graph, std::to_string(i), in, size, options, site);
  }
}

std::vector<Output> ColumnDense::operator()(Output x, CallSite site) const {
  std::vector<Output> ys;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Graph::DeviceScope device(*x.graph, static_cast<int32_t>(i));
    ys.push_back(parts_[i](x, site));
  }
  return ys;
}

RowDense::RowDense(Graph& graph, const std::string& name, int64_t in,
                   int64_t out, int num_devices, const LayerOptions& options,
                   CallSite site) {
  const int64_t size = Divide("RowDense", name, in, num_devices, site);
  const Graph::Scope scope(graph, name);
  LayerOptions own = WithDefaults(options, in);
  for (int i = 0; i < num_devices; ++i) {
    parts_.emplace_back(graph, std::to_string(i), size, out, own, site);
    own.has_bias = false;
  }
}

Output RowDense::operator()(const std::vector<Output>& xs,
                            CallSite site) const {
  if (xs.size() != parts_.size()) {
    throw InvalidArgument(fmt::format("{}: RowDense: want {} parts, got {}",
                                      site.ToString(), parts_.size(),
                                      xs.size()));
  }
  Output sum;
  for (size_t i = 0; i < parts_.size(); ++i) {
    Output y;
    {
      const Graph::DeviceScope device(*xs[i].graph, static_cast<int32_t>(i));
      y = parts_[i](xs[i], site);
    }
    const Graph::DeviceScope first(*xs[i].graph, 0);
    sum = i == 0 ? y : graph::Add(sum, y, site);
  }
  return sum;
}

}  // namespace replicant::nn
