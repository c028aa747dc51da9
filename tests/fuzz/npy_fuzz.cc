// Any bytes are an .npy file or an IoError. An array that was read reads back
// equal after it is written.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/check.h"
#include "base/error.h"
#include "base/tensor/npy.h"

namespace replicant {
namespace {

void ReadAndWrite(std::span<const std::byte> bytes) {
  const HostTensor tensor = ParseNpy(bytes, "fuzz");
  std::string text = NpyPrefix(tensor.view());
  text.append(reinterpret_cast<const char*>(tensor.bytes().data()),
              tensor.size_bytes());
  const HostTensor again = ParseNpy(std::as_bytes(std::span(text)), "again");
  REPLICANT_CHECK(tensor.dtype() == again.dtype(), "another dtype");
  REPLICANT_CHECK_EQ(tensor.shape().ToString(), again.shape().ToString());
  REPLICANT_CHECK(std::ranges::equal(tensor.bytes(), again.bytes()),
                  "other elements");
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
