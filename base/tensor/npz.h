#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor/host_tensor.h"
#include "base/tensor/tensor_view.h"

namespace replicant {

// numpy's .npz files: a zip archive of one .npy file per array, as written by
// numpy.savez and numpy.savez_compressed. Array "state" is the entry
// "state.npy"; entries with other endings are not arrays and are skipped.
//
// Read: stored and deflated entries, zip64 included (files and entries over
// 4 GiB). Refused are arrays that npy.h refuses, encrypted entries, two entries
// of one name, names that point out of the archive when unpacked ("/a", "../a",
// "a\b"), and an entry that claims to be larger than its bytes can inflate to.
// The checksum of an entry is checked when it is read.
//
// Thread-safety: one thread at a time.
class NpzReader {
 public:
  // Maximum size of one array in memory, checked before its allocation: deflate
  // expands up to a thousandfold.
  static constexpr uint64_t kDefaultMaxTensorBytes = uint64_t{64} << 30;

  // Reads the list of entries. Throws IoError:
  // "<path>: <what was found>; <what is allowed>".
  explicit NpzReader(const std::filesystem::path& path,
                     uint64_t max_tensor_bytes = kDefaultMaxTensorBytes);
  // The same from memory, which must outlive the reader; `where` starts the
  // messages.
  NpzReader(std::span<const std::byte> bytes, const std::string& where,
            uint64_t max_tensor_bytes = kDefaultMaxTensorBytes);
  NpzReader(NpzReader&&) noexcept;
  NpzReader& operator=(NpzReader&&) noexcept;
  ~NpzReader();

  // In the order of the archive, without ".npy".
  const std::vector<std::string>& names() const;
  bool Has(std::string_view name) const;

  // Reads one array. Throws IoError for an unknown name or a problem listed in
  // the class comment; the reader stays usable.
  HostTensor Read(std::string_view name) const;

 private:
  struct Archive;
  std::unique_ptr<Archive> archive_;
};

enum class NpzCompression { kStored, kDeflated };

// Writes an archive that numpy.load() opens, replacing `path` atomically. Equal
// tensors give equal files: no time of writing is recorded. The archive is
// built in memory first (its size, on top of the tensors).
//
// Throws InvalidArgument for two tensors of one name, a name that NpzReader
// refuses or that is not UTF-8, and kBF16; IoError if the file cannot be
// written.
void WriteNpz(const std::filesystem::path& path,
              std::span<const NamedTensorView> tensors,
              NpzCompression compression = NpzCompression::kStored);

// The same archive as a string.
std::string EncodeNpz(std::span<const NamedTensorView> tensors,
                      NpzCompression compression = NpzCompression::kStored);

}  // namespace replicant
