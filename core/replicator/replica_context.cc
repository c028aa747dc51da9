#include "core/replicator/replica_context.h"

#include <fmt/format.h>

#include <utility>

#include "core/base/check.h"
#include "core/base/error.h"

namespace replicant::replicator {
namespace {

void CheckReducible(std::string_view primitive, Output x, ReduceOp op,
                    CallSite site) {
  const DType dtype = x.dtype();
  if (dtype == DType::kBool) {
    throw ShapeError(fmt::format("{}: {}: cannot reduce bool; hint: cast it",
                                 site.ToString(), primitive));
  }
  if (op == ReduceOp::kMean && !graph::IsFloating(dtype)) {
    throw ShapeError(
        fmt::format("{}: {}: x is {}; a mean is for floating tensors",
                    site.ToString(), primitive, DTypeName(dtype)));
  }
}

}  // namespace

Graph::DeviceScope ReplicaContext::LogicalDevice(int device, CallSite site) {
  if (device < 0 || device >= num_logical_devices_) {
    throw InvalidArgument(fmt::format(
        "{}: LogicalDevice: {} is none of this replica's; allowed: 0 to {}; "
        "hint: replication.logical_devices",
        site.ToString(), device, num_logical_devices_ - 1));
  }
  return {graph_, device};
}

Output ReplicaContext::AllReduce(Output x, ReduceOp op, CallSite site) {
  CheckReducible("AllReduce", x, op, site);
  return DoAllReduce(x, op, site);
}

std::vector<Output> ReplicaContext::AllReduce(const std::vector<Output>& xs,
                                              ReduceOp op, CallSite site) {
  std::vector<Output> reduced;
  reduced.reserve(xs.size());
  for (const Output& x : xs) reduced.push_back(AllReduce(x, op, site));
  return reduced;
}

std::vector<Output> ReplicaContext::MeanGradients(
    const std::vector<Output>& gradients, CallSite site) {
  std::vector<Output> means;
  means.reserve(gradients.size());
  for (const Output& gradient : gradients) {
    CheckReducible("MeanGradients", gradient, ReduceOp::kMean, site);
    means.push_back(DoMeanGradient(gradient, site));
  }
  return means;
}

Output ReplicaContext::AllGather(Output x, CallSite site) {
  return DoAllGather(x, site);
}

Output ReplicaContext::ReduceScatter(Output x, ReduceOp op, CallSite site) {
  CheckReducible("ReduceScatter", x, op, site);
  if (x.shape().rank() == 0 || x.shape()[0] % num_replicas_ != 0) {
    throw ShapeError(fmt::format(
        "{}: ReduceScatter: the leading dimension of {} cannot be divided "
        "among {} replicas",
        site.ToString(), x.shape().ToString(), num_replicas_));
  }
  return DoReduceScatter(x, op, site);
}

Output ReplicaContext::Broadcast(Output x, int source, CallSite site) {
  if (source < 0 || source >= num_replicas_) {
    throw InvalidArgument(
        fmt::format("{}: Broadcast: source {} is not a replica; allowed: 0 to "
                    "{}",
                    site.ToString(), source, num_replicas_ - 1));
  }
  return DoBroadcast(x, source, site);
}

Optimizer ReplicaContext::WrapOptimizer(Optimizer optimizer, CallSite site) {
  return [this, site, optimizer = std::move(optimizer)](
             const std::vector<VariableId>& parameters,
             const std::vector<Output>& gradients) {
    return optimizer(parameters, MeanGradients(gradients, site));
  };
}

}  // namespace replicant::replicator
