// Any bytes are an .npz file or an IoError; the arrays that can be read are
// written and read again equal, stored and deflated.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "core/base/error.h"
#include "core/tensor/npz.h"

namespace replicant {
namespace {

void ReadAndWrite(std::span<const std::byte> bytes) {
  const NpzReader reader(bytes, "fuzz");
  // a list, because views must keep pointing at the tensors
  std::list<HostTensor> tensors;
  std::vector<NamedTensorView> views;
  for (const std::string& name : reader.names()) {
    try {
      tensors.push_back(reader.Read(name));
      views.push_back({name, tensors.back().view()});
    } catch (const IoError&) {
      // one damaged entry does not keep the others from being read
    }
  }
  for (const auto compression :
       {NpzCompression::kStored, NpzCompression::kDeflated}) {
    const std::string text = EncodeNpz(views, compression);
    const NpzReader again(std::as_bytes(std::span(text)), "again");
    REPLICANT_CHECK_EQ(again.names().size(), views.size());
    for (const NamedTensorView& named : views) {
      const HostTensor tensor = again.Read(named.name);
      REPLICANT_CHECK(tensor.dtype() == named.tensor.dtype(), "another dtype");
      REPLICANT_CHECK_EQ(tensor.shape().ToString(),
                         named.tensor.shape().ToString());
      REPLICANT_CHECK(std::ranges::equal(tensor.bytes(), named.tensor.bytes()),
                      "other elements");
    }
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
