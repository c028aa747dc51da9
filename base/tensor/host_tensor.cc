#include "base/tensor/host_tensor.h"

#include <algorithm>

namespace replicant {

HostTensor HostTensor::Clone(const TensorView& view) {
  HostTensor tensor(view.dtype(), view.shape(),
                    HostBuffer::Fill::kUninitialised);
  std::ranges::copy(view.bytes(), tensor.bytes().begin());
  return tensor;
}

}  // namespace replicant
