#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace replicant {

// Random access to bytes, for the readers of this folder. A file is read with
// pread() instead of a mapping: a file that shrinks kills the process that maps
// it, but only makes pread() an IoError.
//
// Thread-safety: const methods may run concurrently.
class ByteSource {
 public:
  ByteSource() = default;
  virtual ~ByteSource() = default;
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  virtual uint64_t size_bytes() const = 0;

  // Fills `out` from `offset` on; offset + out.size() <= size_bytes().
  // Throws IoError if the file cannot be read or has become shorter.
  virtual void ReadAt(uint64_t offset, std::span<std::byte> out) const = 0;
};

// Throws IoError if the file cannot be opened.
std::unique_ptr<ByteSource> OpenFile(const std::filesystem::path& path);

// Borrows `bytes`, which must outlive the source.
std::unique_ptr<ByteSource> BorrowBytes(std::span<const std::byte> bytes);

// Throws IoError, starting with `where`, unless every byte is 0 or 1: a C++
// bool may hold nothing else.
void CheckBoolBytes(std::span<const std::byte> bytes, const std::string& where);

}  // namespace replicant
