#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace replicant::data {

// An open file that is read at any place.
//
// Thread-safety: as a const object.
class PositionalFile {
 public:
  // Throws DamagedImage for a missing file, and IoError.
  explicit PositionalFile(const std::filesystem::path& path);
  ~PositionalFile();
  PositionalFile(const PositionalFile&) = delete;
  PositionalFile& operator=(const PositionalFile&) = delete;

  uint64_t Size() const;
  // Fills `out` from `offset` on. Throws DamagedImage for a file that is too
  // short, and IoError.
  void Read(uint64_t offset, std::span<std::byte> out) const;

 private:
  const std::filesystem::path path_;
  const int fd_;
};

}  // namespace replicant::data
