#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace replicant::comm {

// Sends the largest elements of a gradient and keeps the others for later:
// top-k sparsification with error feedback (Stich et al., "Sparsified SGD with
// Memory", arXiv:1809.07599, Mem-SGD; Aji and Heafield, arXiv:1704.05021).
//
//   residual += gradient
//   sent      = the k elements of largest magnitude of the residual
//   residual -= sent
//
// An element is sent whole or kept whole, so that nothing is lost to rounding:
// what was sent and the residual together are the residual's sum of gradients,
// bit for bit.

// Number of elements sent out of `count`: at least one unless `count` is 0.
// `share` is in (0, 1].
size_t TopKCount(size_t count, double share);

// One tensor's residual. Thread-safety: one thread at a time.
class TopKResidual {
 public:
  // Starts at zero.
  explicit TopKResidual(size_t count) : residual_(count) {}

  // Adds a gradient to the residual, and moves its indices.size() elements of
  // largest magnitude (of equal ones, the lower index; NaN counts as
  // largest) to `indices`, in ascending order, and `values`, of the same size,
  // at most the tensor's (checked).
  void AddAndTake(std::span<const float> gradient, std::span<int32_t> indices,
                  std::span<float> values);

  std::span<const float> residual() const { return residual_; }

 private:
  // The k-th largest magnitude as a number that orders like magnitudes, and how
  // many elements are larger.
  struct Threshold {
    uint32_t magnitude = 0;
    size_t num_larger = 0;
  };
  Threshold FindThreshold(size_t k);

  std::vector<float> residual_;
  // kept so that calls allocate nothing
  std::vector<uint32_t> histogram_;
  std::vector<uint32_t> candidates_;
};

// out[indices[i]] += values[i]. Indices are within `out` (checked).
void AddSparse(std::span<const int32_t> indices, std::span<const float> values,
               std::span<float> out);

}  // namespace replicant::comm
