// Any bytes are a .safetensors file or an IoError; the tensors that can be read
// are written and read again equal, metadata included.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "core/base/error.h"
#include "core/tensor/safetensors.h"

namespace replicant {
namespace {

void ReadAndWrite(std::span<const std::byte> bytes) {
  const SafetensorsReader reader(bytes, "fuzz");
  // a list, because views must keep pointing at the tensors
  std::list<HostTensor> tensors;
  std::vector<NamedTensorView> views;
  for (const SafetensorsInfo& info : reader.tensors()) {
    try {
      tensors.push_back(reader.Read(info.name));
      views.push_back({info.name, tensors.back().view()});
    } catch (const IoError&) {
      // a type that cannot be read does not keep the others from being read
    }
  }
  const std::string text = EncodeSafetensors(views, reader.metadata());
  const SafetensorsReader again(std::as_bytes(std::span(text)), "again");
  REPLICANT_CHECK(again.metadata() == reader.metadata(), "other metadata");
  REPLICANT_CHECK_EQ(again.tensors().size(), views.size());
  for (const NamedTensorView& named : views) {
    const HostTensor tensor = again.Read(named.name);
    REPLICANT_CHECK(tensor.dtype() == named.tensor.dtype(), "another dtype");
    REPLICANT_CHECK_EQ(tensor.shape().ToString(),
                       named.tensor.shape().ToString());
    REPLICANT_CHECK(std::ranges::equal(tensor.bytes(), named.tensor.bytes()),
                    "other elements");
  }
}

}  // namespace
}  // namespace replicant

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    replicant::ReadAndWrite(std::as_bytes(std::span(data, size)));
  } catch (const replicant::IoError&) {
  }
  return 0;
}
