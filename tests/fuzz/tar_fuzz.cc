// Any bytes are a tar file or an IoError. Members lie in the file, in order.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/check.h"
#include "core/base/error.h"
#include "learner/data/tar.h"

namespace replicant::data {
namespace {

void List(std::span<const std::byte> bytes) {
  uint64_t end = 0;
  ForEachTarMember(
      bytes.size(), "fuzz",
      [&](uint64_t offset, std::span<std::byte> out) {
        REPLICANT_CHECK(
            offset <= bytes.size() && out.size() <= bytes.size() - offset,
            "reads behind the end");
        std::ranges::copy(bytes.subspan(offset, out.size()), out.begin());
      },
      [&](const TarMember& member) {
        REPLICANT_CHECK(member.offset >= end, "members overlap");
        end = member.offset + member.size_bytes;
        REPLICANT_CHECK(end <= bytes.size(), "a member behind the end");
      });
}

}  // namespace
}  // namespace replicant::data

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    replicant::data::List(std::as_bytes(std::span(data, size)));
  } catch (const replicant::IoError&) {
  }
  return 0;
}
