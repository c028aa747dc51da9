#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace replicant::data {

// One file in a tar file.
struct TarMember {
  std::string name;
  uint64_t offset = 0;  // of its bytes
  uint64_t size_bytes = 0;
  // A hard or symbolic link: the NormalTarName() of the member with the bytes,
  // or an absolute path. Empty: not a link.
  std::string link;
  // Why its bytes cannot be read, in the plural: "sparse files with holes".
  // Empty: they can.
  std::string problem;
};

// `name` without "." and with as few ".." as possible.
std::string NormalTarName(std::string_view name);

// Reads `out.size()` bytes at `offset`; throws IoError.
using ReadAt = std::function<void(uint64_t offset, std::span<std::byte> out)>;

// Calls `visit` for every member of a tar file of `size_bytes` that is no
// folder, in order. Supports ustar, pax, the formats of GNU tar, and archives
// one behind the other. Sparse files without holes are files; other sparse
// files, devices and pipes, parts of files in several volumes, and bytes behind
// the end that are no archive are members with a problem.
//
// Throws IoError, "<where>: ...", for a header with a wrong checksum or a
// member beyond the end, and what `read` and `visit` throw.
void ForEachTarMember(uint64_t size_bytes, const std::string& where,
                      const ReadAt& read,
                      const std::function<void(const TarMember&)>& visit);

}  // namespace replicant::data
