#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "base/tensor/host_tensor.h"
#include "base/tensor/tensor_view.h"

namespace replicant {

// numpy's .npy files: one dense array each.
//
//   "\x93NUMPY" | version (2 bytes) | header length (LE; 2 bytes in version
//   1.0, 4 bytes in 2.0 and 3.0) | header, a Python dict literal | the elements
//
// Read: versions 1.0, 2.0 and 3.0 of f4, f8, u1, i4, i8 and b1, in either byte
// order; Fortran order is transposed to row-major. Headers over 65535 bytes,
// more than 8 dimensions, other dtypes (f2, c8, strings, ...), structured
// arrays and objects (pickles) are refused, and so is a file whose length does
// not match its header.
// Written: version 1.0, row-major, little-endian, elements aligned to 64 bytes.
// Version 2.0 exists for headers over 65535 bytes, which 8 dimensions cannot
// reach. numpy has no bfloat16: writing kBF16 throws InvalidArgument.
//
// Source: numpy.lib.format in the numpy manual ("A simple file format for NumPy
// arrays", NEP 1).

// Throws IoError: "<path>: <what was found>; <what is allowed>".
HostTensor ReadNpy(const std::filesystem::path& path);

// The same from memory; `where` starts the messages.
HostTensor ParseNpy(std::span<const std::byte> bytes, const std::string& where);

// The same from a stream of `size_bytes` bytes: `read` fills its argument with
// the next ones, or throws. Nothing is read beyond them, and nothing is
// allocated for elements that the stream does not hold.
using NpyReadFunction = std::function<void(std::span<std::byte>)>;
HostTensor ReadNpyStream(uint64_t size_bytes, const NpyReadFunction& read,
                         const std::string& where);

// Replaces `path` atomically. Throws InvalidArgument for kBF16, IoError if the
// file cannot be written.
void WriteNpy(const std::filesystem::path& path, const TensorView& tensor);

// The bytes before the elements of the file: write them, then tensor.bytes().
// Throws InvalidArgument for kBF16.
std::string NpyPrefix(const TensorView& tensor);

}  // namespace replicant
