// Any bytes are an .npz file or an IoError. Arrays that were read read back
// equal after they are written, stored and deflated.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/check.h"
#include "base/error.h"
#include "base/tensor/npz.h"
#include "tests/fuzz/tensor_round_trip.h"

namespace replicant {
namespace {

void ReadAndWrite(std::span<const std::byte> bytes) {
  const NpzReader reader(bytes, "fuzz");
  ReadTensors read;
  for (const std::string& name : reader.names()) read.TryRead(reader, name);
  for (const auto compression :
       {NpzCompression::kStored, NpzCompression::kDeflated}) {
    const std::string text = EncodeNpz(read.views, compression);
    const NpzReader again(std::as_bytes(std::span(text)), "again");
    REPLICANT_CHECK_EQ(again.names().size(), read.views.size());
    read.CheckAllIn(again);
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
