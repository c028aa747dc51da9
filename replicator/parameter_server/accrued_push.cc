#include "replicator/parameter_server/accrued_push.h"

#include <fmt/format.h>

#include <cstring>
#include <span>

#include "base/check.h"
#include "base/error.h"
#include "replicator/calls/collective_ops.h"

namespace replicant::replicator {
namespace {

template <typename T>
void AddTo(std::span<T> sum, std::span<const T> x) {
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += x[i];
}

}  // namespace

void AccruedPush::Add(const std::vector<TensorView>& pushed) {
  for (size_t i = 0; i < pushed.size(); ++i) {
    const TensorView& view = pushed[i];
    if (i == sums_.size()) sums_.emplace_back(view.dtype(), view.shape());
    const MutableTensorView sum = sums_[i].mutable_view();
    if (is_empty_) {
      if (view.size_bytes() > 0) {
        std::memcpy(sum.data(), view.data(), view.size_bytes());
      }
    } else if (view.dtype() == DType::kF32) {
      AddTo(sum.Span<float>(), view.Span<float>());
    } else {
      REPLICANT_CHECK(view.dtype() == DType::kF64, "cannot add {}",
                      DTypeName(view.dtype()));
      AddTo(sum.Span<double>(), view.Span<double>());
    }
  }
  is_empty_ = false;
}

std::vector<TensorView> AccruedPush::Take() {
  is_empty_ = true;
  std::vector<TensorView> views;
  views.reserve(sums_.size());
  for (const HostTensor& sum : sums_) views.push_back(sum.view());
  return views;
}

void CheckAccrues(const StepSplit& split) {
  if (!split.pushed_variables.empty()) {
    throw InvalidArgument(fmt::format(
        "push_interval: '{}' is pushed whole, and has no sum over updates; "
        "allowed for this step: 1",
        *split.pushed_variables.begin()));
  }
  for (const Output& pushed : split.pushed) {
    const graph::Node& node = pushed.producer();
    if (PrimitiveOf(node) == Primitive::kAllReduce &&
        graph::IsFloating(pushed.dtype())) {
      continue;
    }
    throw InvalidArgument(
        fmt::format("{}: push_interval: {} '{}' is not a mean of gradients, "
                    "and its sum over updates has no meaning (the norm of a "
                    "clipped update, say); allowed for this step: 1; hint: "
                    "accumulation_steps adds up before clipping",
                    node.site.ToString(), node.op->name, node.name));
  }
}

}  // namespace replicant::replicator
