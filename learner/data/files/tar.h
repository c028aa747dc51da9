#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace replicant::data {

// One file in a tar file.
struct TarMember {
  std::string name;
  uint64_t offset = 0;  // of its bytes
  uint64_t size_bytes = 0;
};

// Reads `out.size()` bytes at `offset`; throws IoError.
using ReadAt = std::function<void(uint64_t offset, std::span<std::byte> out)>;

// Calls `visit` for every regular file in a tar file of `size_bytes`, in order.
// Supports ustar with the long names of GNU tar and pax, but no sparse or
// compressed files.
//
// Throws IoError, "<where>: ...", for a header with a wrong checksum or a
// member beyond the end, and what `read` and `visit` throw.
void ForEachTarMember(uint64_t size_bytes, const std::string& where,
                      const ReadAt& read,
                      const std::function<void(const TarMember&)>& visit);

}  // namespace replicant::data
