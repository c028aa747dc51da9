// Any bytes are a tar file or an IoError. Members lie in the file, in order.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "base/error.h"
#include "base/images/tar.h"

namespace replicant::data {
namespace {

// Writes the right sum into a header, which mutations would not find.
void MakeSum(std::span<std::byte> header) {
  const auto field = header.subspan(148, 8);
  std::ranges::fill(field, std::byte{' '});
  uint32_t sum = 0;
  for (const std::byte b : header) sum += std::to_integer<uint32_t>(b);
  // an empty block ends the file
  if (sum == 8 * ' ') {
    std::ranges::fill(field, std::byte{0});
    return;
  }
  for (size_t i = 6; i-- > 0; sum /= 8) field[i] = std::byte('0' + sum % 8);
}

void List(std::span<const std::byte> bytes) {
  uint64_t end = 0;
  ForEachTarMember(
      bytes.size(), "fuzz",
      [&](uint64_t offset, std::span<std::byte> out) {
        REPLICANT_CHECK(
            offset <= bytes.size() && out.size() <= bytes.size() - offset,
            "reads behind the end");
        std::ranges::copy(bytes.subspan(offset, out.size()), out.begin());
        if (out.size() == 512) MakeSum(out);
      },
      [&](const TarMember& member) {
        if (!member.problem.empty()) return;
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
