#include "base/crc32c.h"

#include <nmmintrin.h>

#include <cstring>

namespace replicant {

uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t crc) {
  // SSE4.2, part of the x86-64-v3 baseline, computes exactly this polynomial
  uint64_t state = ~crc;
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i, sizeof(word));
    state = _mm_crc32_u64(state, word);
  }
  auto tail = static_cast<uint32_t>(state);
  for (; i < bytes.size(); ++i) {
    tail = _mm_crc32_u8(tail, std::to_integer<uint8_t>(bytes[i]));
  }
  return ~tail;
}

uint32_t Crc32c(std::string_view text, uint32_t crc) {
  return Crc32c(std::as_bytes(std::span(text)), crc);
}

}  // namespace replicant
