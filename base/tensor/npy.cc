#include "base/tensor/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <string_view>

#include "base/error.h"
#include "base/fs.h"
#include "base/tensor/byte_source.h"
#include "base/tensor/npy_header.h"

namespace replicant {
namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr size_t kPrefixAlignment = 64;
constexpr uint32_t kMaxNpyHeaderBytes = 65535;

// Reads a stream whose length is known, so that no read runs past its end.
class BoundedReader {
 public:
  BoundedReader(uint64_t size_bytes, const NpyReadFunction& read,
                const std::string& where)
      : size_bytes_(size_bytes),
        remaining_bytes_(size_bytes),
        read_(read),
        where_(where) {}

  void Read(std::span<std::byte> out) {
    if (out.size() > remaining_bytes_) {
      throw IoError(
          fmt::format("{}: cut short: {} bytes end inside the npy "
                      "header; hint: was it copied in full?",
                      where_, size_bytes_));
    }
    read_(out);
    remaining_bytes_ -= out.size();
  }
  // A little-endian number of `count` <= 4 bytes.
  uint32_t ReadNumber(size_t count) {
    std::array<std::byte, 4> bytes{};
    Read(std::span(bytes).first(count));
    return std::bit_cast<uint32_t>(bytes);
  }
  std::string ReadText(size_t count) {
    std::string text(count, '\0');
    Read(std::as_writable_bytes(std::span(text)));
    return text;
  }
  uint64_t remaining_bytes() const { return remaining_bytes_; }

 private:
  const uint64_t size_bytes_;
  uint64_t remaining_bytes_;
  const NpyReadFunction& read_;
  const std::string& where_;
};

NpyHeader ReadHeader(BoundedReader& reader, const std::string& where) {
  if (reader.ReadText(kMagic.size()) != kMagic) {
    throw IoError(fmt::format(
        R"({}: not an npy file: it does not start with \x93NUMPY)", where));
  }
  const uint32_t major = reader.ReadNumber(1);
  const uint32_t minor = reader.ReadNumber(1);
  if (major < 1 || major > 3 || minor != 0) {
    throw IoError(
        fmt::format("{}: npy version {}.{}; allowed: 1.0, 2.0 and 3.0", where,
                    major, minor));
  }
  const uint32_t header_bytes = reader.ReadNumber(major == 1 ? 2 : 4);
  if (header_bytes > kMaxNpyHeaderBytes) {
    throw IoError(
        fmt::format("{}: npy header of {} bytes; at most {} are allowed", where,
                    header_bytes, kMaxNpyHeaderBytes));
  }
  return ParseNpyHeader(reader.ReadText(header_bytes), where);
}

// Reverses the bytes of every element.
void SwapByteOrder(std::span<std::byte> bytes, size_t element_bytes) {
  for (size_t i = 0; i < bytes.size(); i += element_bytes) {
    std::ranges::reverse(bytes.subspan(i, element_bytes));
  }
}

// Copies elements of kSize bytes from column-major `from` to row-major `to`.
template <size_t kSize>
void CopyTransposed(const Shape& shape, const std::byte* from, std::byte* to) {
  const std::span<const int64_t> dims = shape.dims();
  // where the element at `index` lies in `from`: sum of index[a] * stride[a]
  std::array<int64_t, Shape::kMaxRank> index{};
  std::array<int64_t, Shape::kMaxRank> stride{};
  int64_t next_stride = 1;
  for (size_t axis = 0; axis < dims.size(); ++axis) {
    stride[axis] = next_stride;
    next_stride *= dims[axis];
  }

  int64_t offset = 0;
  for (int64_t i = 0; i < shape.num_elements(); ++i) {
    std::memcpy(to, from + static_cast<size_t>(offset) * kSize, kSize);
    to += kSize;
    // step `index` in row-major order, the last axis first
    for (size_t axis = dims.size(); axis-- > 0;) {
      offset += stride[axis];
      if (++index[axis] < dims[axis]) break;
      offset -= dims[axis] * stride[axis];
      index[axis] = 0;
    }
  }
}

HostTensor Transposed(const HostTensor& column_major) {
  HostTensor result(column_major.dtype(), column_major.shape(),
                    HostBuffer::Fill::kUninitialised);
  const auto copy = [&] {
    switch (DTypeSize(result.dtype())) {
      case 1:
        return &CopyTransposed<1>;
      case 2:
        return &CopyTransposed<2>;
      case 4:
        return &CopyTransposed<4>;
      default:
        return &CopyTransposed<8>;
    }
  }();
  copy(result.shape(), column_major.bytes().data(), result.bytes().data());
  return result;
}

HostTensor ReadFromSource(const ByteSource& source, const std::string& where) {
  uint64_t offset = 0;
  const auto read = [&](std::span<std::byte> out) {
    source.ReadAt(offset, out);
    offset += out.size();
  };
  return ReadNpyStream(source.size_bytes(), read, where);
}

}  // namespace

HostTensor ReadNpyStream(uint64_t size_bytes, const NpyReadFunction& read,
                         const std::string& where) {
  BoundedReader reader(size_bytes, read, where);
  const NpyHeader header = ReadHeader(reader, where);

  const size_t element_bytes = DTypeSize(header.dtype);
  const uint64_t data_bytes =
      static_cast<uint64_t>(header.shape.num_elements()) * element_bytes;
  if (data_bytes != reader.remaining_bytes()) {
    throw IoError(fmt::format(
        "{}: the npy header says {} {}, {} bytes, but {} bytes follow it",
        where, DTypeName(header.dtype), header.shape.ToString(), data_bytes,
        reader.remaining_bytes()));
  }

  HostTensor tensor(header.dtype, header.shape,
                    HostBuffer::Fill::kUninitialised);
  reader.Read(tensor.bytes());
  if (header.is_big_endian) SwapByteOrder(tensor.bytes(), element_bytes);
  if (header.dtype == DType::kBool) CheckBoolBytes(tensor.bytes(), where);
  if (header.is_fortran_order && header.shape.rank() > 1) {
    return Transposed(tensor);
  }
  return tensor;
}

HostTensor ReadNpy(const std::filesystem::path& path) {
  return ReadFromSource(*OpenFile(path), path.string());
}

HostTensor ParseNpy(std::span<const std::byte> bytes,
                    const std::string& where) {
  return ReadFromSource(*BorrowBytes(bytes), where);
}

std::string NpyPrefix(const TensorView& tensor) {
  std::string header = FormatNpyHeader(tensor.dtype(), tensor.shape());
  // magic, version and length take 10 bytes; spaces and a newline fill up
  constexpr size_t kPreambleBytes = 10;
  const size_t prefix_bytes =
      (kPreambleBytes + header.size() + 1 + kPrefixAlignment - 1) /
      kPrefixAlignment * kPrefixAlignment;
  header.resize(prefix_bytes - kPreambleBytes - 1, ' ');
  header += '\n';

  std::string prefix(kMagic);
  prefix += '\x01';
  prefix += '\x00';
  prefix += static_cast<char>(header.size() & 0xFFU);
  prefix += static_cast<char>(header.size() >> 8);
  return prefix + header;
}

void WriteNpy(const std::filesystem::path& path, const TensorView& tensor) {
  // makes the header first: it may throw, and no file is left then
  const std::string prefix = NpyPrefix(tensor);
  AtomicFile file(path);
  file.Write(prefix);
  file.Write(tensor.bytes());
  file.Commit();
}

}  // namespace replicant
