#pragma once

#include <algorithm>
#include <list>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/tensor/host_tensor.h"
#include "base/tensor/tensor_view.h"

namespace replicant {

// The tensors of a file that can be read, and views of them to write it again.
struct ReadTensors {
  // a list, because views must keep pointing at the tensors
  std::list<HostTensor> tensors;
  std::vector<NamedTensorView> views;

  // One that is damaged, or of a type that cannot be read, does not keep the
  // others from being read.
  template <typename Reader>
  void TryRead(const Reader& reader, const std::string& name) {
    try {
      tensors.push_back(reader.Read(name));
      views.push_back({name, tensors.back().view()});
    } catch (const IoError&) {
    }
  }

  // `reader` finds all of them as they were.
  template <typename Reader>
  void CheckAllIn(const Reader& reader) const {
    for (const NamedTensorView& named : views) {
      const HostTensor tensor = reader.Read(named.name);
      REPLICANT_CHECK(tensor.dtype() == named.tensor.dtype(), "another dtype");
      REPLICANT_CHECK_EQ(tensor.shape().ToString(),
                         named.tensor.shape().ToString());
      REPLICANT_CHECK(std::ranges::equal(tensor.bytes(), named.tensor.bytes()),
                      "other elements");
    }
  }
};

}  // namespace replicant
