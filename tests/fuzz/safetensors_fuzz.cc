// Any bytes are a .safetensors file or an IoError. Tensors that were read read
// back equal after they are written, metadata included.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/check.h"
#include "base/error.h"
#include "base/tensor/safetensors.h"
#include "tests/fuzz/tensor_round_trip.h"

namespace replicant {
namespace {

void ReadAndWrite(std::span<const std::byte> bytes) {
  const SafetensorsReader reader(bytes, "fuzz");
  ReadTensors read;
  for (const SafetensorsInfo& info : reader.tensors()) {
    read.TryRead(reader, info.name);
  }
  const std::string text = EncodeSafetensors(read.views, reader.metadata());
  const SafetensorsReader again(std::as_bytes(std::span(text)), "again");
  REPLICANT_CHECK(again.metadata() == reader.metadata(), "other metadata");
  REPLICANT_CHECK_EQ(again.tensors().size(), read.views.size());
  read.CheckAllIn(again);
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
