#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace replicant {

// CRC-32C (Castagnoli; RFC 3720, appendix B.4) of `bytes`. To continue after an
// earlier piece, pass its result as `crc`.
uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t crc = 0);
uint32_t Crc32c(std::string_view text, uint32_t crc = 0);

}  // namespace replicant
