#pragma once

#include <cstddef>

#include "engine/graph/tensor_type.h"
#include "engine/kernels/backend.h"

namespace replicant::runtime {

// An input of a plan that stays in the memory of the plan's backend from run to
// run, such as a table too large to be copied for each. Its owner changes parts
// of it between runs.
//
// Several plans of one backend may read it, one run after the other.
//
// Thread-safety: that of the executor.
class ResidentInput {
 public:
  virtual ~ResidentInput() = default;

  virtual const graph::TensorType& type() const = 0;
  // In memory of the backend; stays where it is.
  virtual std::byte* data() = 0;
  // Queues the copies that the next run's values need on the stream of a plan
  // that is about to run: they follow what its earlier runs read, and precede
  // what this one reads. Throws DeviceError.
  virtual void Update(kernels::Stream& stream) = 0;
};

}  // namespace replicant::runtime
