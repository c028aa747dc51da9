#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/nn/layers.h"

// A matrix product that the logical devices of a replica share (Shoeybi et al.,
// "Megatron-LM", arXiv:1909.08053, section 3). Two of them make a layer of
// hidden units whose weights and activations are divided, with one transfer of
// x to every device and one sum of results:
//
//   const nn::ColumnDense up(graph, "up", in, hidden, num_devices);
//   const nn::RowDense down(graph, "down", hidden, out, num_devices);
//   std::vector<Output> h = up(x);
//   for (size_t i = 0; i < h.size(); ++i) {
//     const auto device = replica.LogicalDevice(i);
//     h[i] = graph::Relu(h[i]);
//   }
//   const Output y = down(h);
//
// Part i lies on device i with its variables, "NAME/i/weight" and
// "NAME/i/bias". The mathematics is the same as Dense's.
namespace replicant::nn {

// y_i = x weight_i^T + bias_i: [B, in] -> a [B, out / N] on each of N devices,
// bit for bit the columns of the whole where a backend's dot products do not
// depend on the number of columns.
class ColumnDense {
 public:
  // Throws InvalidArgument unless N divides `out`.
  ColumnDense(Graph& graph, const std::string& name, int64_t in, int64_t out,
              int num_devices, const LayerOptions& options = {},
              CallSite site = CallSite::Here());

  std::vector<Output> operator()(Output x,
                                 CallSite site = CallSite::Here()) const;

 private:
  std::vector<Dense> parts_;
};

// y = sum_i x_i weight_i^T + bias: a [B, in / N] on each of N devices ->
// [B, out] on the first one. The parts are added in the order of devices, so
// the bits depend on N. The bias is the first part's.
class RowDense {
 public:
  // Throws InvalidArgument unless N divides `in`.
  RowDense(Graph& graph, const std::string& name, int64_t in, int64_t out,
           int num_devices, const LayerOptions& options = {},
           CallSite site = CallSite::Here());

  // Throws InvalidArgument unless xs.size() is N.
  Output operator()(const std::vector<Output>& xs,
                    CallSite site = CallSite::Here()) const;

 private:
  std::vector<Dense> parts_;
};

}  // namespace replicant::nn
