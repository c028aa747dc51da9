// Combines the moments of several parts of a batch (graph/ops/norm.h). Works on
// few elements, of any dtype.
#include "engine/kernels/common/element.h"
#include "engine/kernels/common/host_kernel.h"

namespace replicant::kernels {
namespace {

// Moments [R, 2, C].
struct MomentsShape {
  explicit MomentsShape(const graph::TensorType& type)
      : parts(type.shape[0]), channels(type.shape[2]), dtype(type.dtype) {}

  double Mean(const std::byte* moments, int64_t part, int64_t channel) const {
    return Load(moments, dtype, 2 * part * channels + channel);
  }
  double Variance(const std::byte* moments, int64_t part,
                  int64_t channel) const {
    return Load(moments, dtype, (2 * part + 1) * channels + channel);
  }
  void Put(std::byte* moments, int64_t part, int64_t channel, double mean,
           double variance) const {
    Store(moments, dtype, 2 * part * channels + channel, mean);
    Store(moments, dtype, (2 * part + 1) * channels + channel, variance);
  }

  int64_t parts, channels;
  DType dtype;
};

RunFunction MakeCombine(const KernelRequest& request) {
  const MomentsShape s(request.input(0));
  return [s](const Operands& operands) {
    const std::byte* moments = operands.inputs[0];
    const auto parts = static_cast<double>(s.parts);
    for (int64_t c = 0; c < s.channels; ++c) {
      double mean = 0.0;
      for (int64_t r = 0; r < s.parts; ++r) mean += s.Mean(moments, r, c);
      mean /= parts;
      double squares = 0.0;
      for (int64_t r = 0; r < s.parts; ++r) {
        const double distance = s.Mean(moments, r, c) - mean;
        squares += s.Variance(moments, r, c) + distance * distance;
      }
      s.Put(operands.outputs[0], 0, c, mean, squares / parts);
    }
  };
}

// inputs: dmoments [2, C], moments [R, 2, C], their combination [2, C]
//
//   dmean_r = (dmean + 2 dvariance (mean_r - mean)) / R
//   dvariance_r = dvariance / R
RunFunction MakeCombineGradient(const KernelRequest& request) {
  const MomentsShape s(request.input(1));
  return [s](const Operands& operands) {
    const auto parts = static_cast<double>(s.parts);
    for (int64_t c = 0; c < s.channels; ++c) {
      const double dmean = s.Mean(operands.inputs[0], 0, c);
      const double dvariance = s.Variance(operands.inputs[0], 0, c);
      const double mean = s.Mean(operands.inputs[2], 0, c);
      for (int64_t r = 0; r < s.parts; ++r) {
        const double distance = s.Mean(operands.inputs[1], r, c) - mean;
        s.Put(operands.outputs[0], r, c,
              (dmean + 2.0 * dvariance * distance) / parts, dvariance / parts);
      }
    }
  };
}

}  // namespace

void AddMomentsKernels(HostKernelTable& table) {
  table.emplace("CombineMoments", &MakeCombine);
  table.emplace("CombineMomentsGradient", &MakeCombineGradient);
}

}  // namespace replicant::kernels
