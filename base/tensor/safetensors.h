#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor/host_tensor.h"
#include "base/tensor/safetensors_header.h"
#include "base/tensor/tensor_view.h"

namespace replicant {

class ByteSource;

// The .safetensors format: named dense tensors and a map of texts.
//
//   header length (8 bytes, little-endian) | header, JSON, may end in spaces |
//   the elements of every tensor, row-major, little-endian
//
// Opening a file reads and checks the header only, whatever the size of the
// tensors. Refused are a header over 100,000,000 bytes (the reference's limit)
// or longer than the file, JSON that is not the format's, two entries of one
// name, more than 8 dimensions, offsets with gaps, overlaps or outside the
// file, and a size that does not match the shape.
//
// As in the reference, the header may begin with blanks, its metadata may be
// null, and unknown fields of an entry are ignored. Types that DType lacks are
// converted (safetensors_types.h); a file with tensors of a type that cannot be
// converted can be opened and listed.
//
// Thread-safety: const methods may run concurrently.
//
// Source: the README of github.com/huggingface/safetensors, "Format".
class SafetensorsReader {
 public:
  // Throws IoError: "<path>: <what was found>; <what is allowed>".
  explicit SafetensorsReader(const std::filesystem::path& path);
  // The same from memory, which must outlive the reader; `where` starts the
  // messages.
  SafetensorsReader(std::span<const std::byte> bytes, std::string where);
  SafetensorsReader(SafetensorsReader&&) noexcept;
  SafetensorsReader& operator=(SafetensorsReader&&) noexcept;
  ~SafetensorsReader();

  const SafetensorsMetadata& metadata() const { return header_.metadata; }
  // Every tensor, in the order of the data.
  const std::vector<SafetensorsInfo>& tensors() const {
    return header_.tensors;
  }
  bool Has(std::string_view name) const;

  // Reads one tensor, F16 as kF32 and so on (SafetensorsType::dtype). Throws
  // IoError if there is no tensor with that name, if its type cannot be read,
  // if a kBool element is neither 0 nor 1 or a U64 element too large, or if the
  // file cannot be read.
  HostTensor Read(std::string_view name) const;

 private:
  void ReadHeader();

  std::string where_;
  std::unique_ptr<ByteSource> source_;
  SafetensorsHeader header_;
  std::map<std::string, size_t, std::less<>> index_of_name_;
  // where the data begins in the file
  uint64_t data_offset_ = 0;
};

// Writes a file that the reference implementation reads, replacing `path`
// atomically. As there, tensors of larger elements come first and equal ones
// are sorted by name, so every tensor is aligned to its elements; the header is
// padded with spaces to a multiple of 8 bytes. Equal arguments give equal
// files.
//
// Throws InvalidArgument for two tensors of one name, the name "__metadata__",
// text that is not UTF-8, and a header over 100,000,000 bytes; IoError if the
// file cannot be written.
void WriteSafetensors(const std::filesystem::path& path,
                      std::span<const NamedTensorView> tensors,
                      const SafetensorsMetadata& metadata = {});

// The same file as a string.
std::string EncodeSafetensors(std::span<const NamedTensorView> tensors,
                              const SafetensorsMetadata& metadata = {});

}  // namespace replicant
