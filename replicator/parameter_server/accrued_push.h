#pragma once

#include <vector>

#include "base/tensor/host_tensor.h"
#include "base/tensor/tensor_view.h"
#include "replicator/parameter_server/step_split.h"

namespace replicant::replicator {

// The sum of the gradients of several updates, which travel as one push
// (ReplicationConfig::push_interval): `accruedgradients` of Downpour SGD, Dean
// et al. 2012, appendix 7, algorithm 7.1.
class AccruedPush {
 public:
  // Adds the tensors of one push, always the same ones. They are f32 or f64 if
  // Add() is called more than once before Take() (checked).
  void Add(const std::vector<TensorView>& pushed);
  // Returns the sums, valid until the next Add(), which starts new ones.
  std::vector<TensorView> Take();

 private:
  std::vector<HostTensor> sums_;
  bool is_empty_ = true;
};

// Throws InvalidArgument, naming the place, if a step pushes anything but means
// of gradients: no other sum is meaningful.
void CheckAccrues(const StepSplit& split);

}  // namespace replicant::replicator
