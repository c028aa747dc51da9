#include "base/tensor/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/fs.h"
#include "base/tensor/byte_source.h"
#include "base/tensor/safetensors_types.h"

namespace replicant {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kLengthBytes = 8;

// The reference sorts by its list of types, which goes from small to large
// elements; these are ours in its order.
int RankOf(DType dtype) {
  constexpr std::array kAscending = {DType::kBool, DType::kU8,  DType::kBF16,
                                     DType::kI32,  DType::kF32, DType::kF64,
                                     DType::kI64};
  return static_cast<int>(std::ranges::find(kAscending, dtype) -
                          kAscending.begin());
}

void CheckNames(std::span<const NamedTensorView> tensors) {
  std::set<std::string_view> seen;
  for (const NamedTensorView& named : tensors) {
    if (named.name == "__metadata__") {
      throw InvalidArgument(
          "WriteSafetensors: no tensor may be named '__metadata__'");
    }
    if (!seen.insert(named.name).second) {
      throw InvalidArgument(fmt::format(
          "WriteSafetensors: two tensors are named '{}'", named.name));
    }
  }
}

// Calls `write` with the length and header, then with each tensor's bytes.
template <typename Write>
void Encode(std::span<const NamedTensorView> tensors,
            const SafetensorsMetadata& metadata, Write&& write) {
  CheckNames(tensors);
  std::vector<const NamedTensorView*> sorted;
  for (const NamedTensorView& named : tensors) sorted.push_back(&named);
  std::ranges::sort(sorted, {}, [](const NamedTensorView* named) {
    return std::tuple(-RankOf(named->tensor.dtype()),
                      std::string_view(named->name));
  });

  SafetensorsHeader header;
  header.metadata = metadata;
  uint64_t position = 0;
  for (const NamedTensorView* named : sorted) {
    const TensorView& tensor = named->tensor;
    const uint64_t end = position + tensor.size_bytes();
    header.tensors.push_back({named->name,
                              std::string(SafetensorsDTypeName(tensor.dtype())),
                              tensor.shape(), position, end});
    position = end;
  }

  const std::string json = FormatSafetensorsHeader(header);
  if (json.size() > kMaxHeaderBytes) {
    throw InvalidArgument(fmt::format(
        "WriteSafetensors: header of {} bytes; at most {} are allowed",
        json.size(), kMaxHeaderBytes));
  }
  const auto length =
      std::bit_cast<std::array<std::byte, kLengthBytes>>(uint64_t{json.size()});
  write(std::span<const std::byte>(length));
  write(std::as_bytes(std::span(json)));
  for (const NamedTensorView* named : sorted) write(named->tensor.bytes());
}

}  // namespace

SafetensorsReader::SafetensorsReader(const std::filesystem::path& path)
    : where_(path.string()), source_(OpenFile(path)) {
  ReadHeader();
}

SafetensorsReader::SafetensorsReader(std::span<const std::byte> bytes,
                                     std::string where)
    : where_(std::move(where)), source_(BorrowBytes(bytes)) {
  ReadHeader();
}

SafetensorsReader::SafetensorsReader(SafetensorsReader&&) noexcept = default;
SafetensorsReader& SafetensorsReader::operator=(SafetensorsReader&&) noexcept =
    default;
SafetensorsReader::~SafetensorsReader() = default;

void SafetensorsReader::ReadHeader() {
  const uint64_t file_bytes = source_->size_bytes();
  if (file_bytes < kLengthBytes) {
    throw IoError(fmt::format("{}: {} bytes, too short for a safetensors file",
                              where_, file_bytes));
  }
  std::array<std::byte, kLengthBytes> length{};
  source_->ReadAt(0, length);
  const auto header_bytes = std::bit_cast<uint64_t>(length);
  if (header_bytes > kMaxHeaderBytes) {
    throw IoError(fmt::format(
        "{}: safetensors header of {} bytes; at most {} are allowed; hint: is "
        "it a safetensors file?",
        where_, header_bytes, kMaxHeaderBytes));
  }
  if (header_bytes > file_bytes - kLengthBytes) {
    throw IoError(
        fmt::format("{}: safetensors header of {} bytes in a file of {}; hint: "
                    "was it copied in full?",
                    where_, header_bytes, file_bytes));
  }

  std::string json(header_bytes, '\0');
  source_->ReadAt(kLengthBytes, std::as_writable_bytes(std::span(json)));
  data_offset_ = kLengthBytes + header_bytes;
  header_ = ParseSafetensorsHeader(json, file_bytes - data_offset_, where_);
  for (size_t i = 0; i < header_.tensors.size(); ++i) {
    index_of_name_.emplace(header_.tensors[i].name, i);
  }
}

bool SafetensorsReader::Has(std::string_view name) const {
  return index_of_name_.contains(name);
}

HostTensor SafetensorsReader::Read(std::string_view name) const {
  const auto found = index_of_name_.find(name);
  if (found == index_of_name_.end()) {
    throw IoError(fmt::format("{}: no tensor '{}' among its {}", where_, name,
                              header_.tensors.size()));
  }
  const SafetensorsInfo& info = header_.tensors[found->second];
  const std::string where = fmt::format("{}: tensor '{}'", where_, name);
  const SafetensorsType* const type = FindSafetensorsType(info.dtype_name);
  if (type == nullptr || !type->dtype) {
    throw IoError(fmt::format("{} has dtype '{}'; allowed: {}", where,
                              info.dtype_name, ReadableSafetensorsTypes()));
  }

  // the header was checked: the size fits the file and the shape
  HostTensor tensor(*type->dtype, info.shape, HostBuffer::Fill::kUninitialised);
  if (type->name == SafetensorsDTypeName(*type->dtype)) {
    source_->ReadAt(data_offset_ + info.begin, tensor.bytes());
  } else {
    std::vector<std::byte> bytes(info.end - info.begin);
    source_->ReadAt(data_offset_ + info.begin, bytes);
    ConvertFromSafetensors(*type, bytes, tensor.mutable_view(), where);
  }
  if (tensor.dtype() == DType::kBool) CheckBoolBytes(tensor.bytes(), where);
  return tensor;
}

std::string EncodeSafetensors(std::span<const NamedTensorView> tensors,
                              const SafetensorsMetadata& metadata) {
  std::string text;
  Encode(tensors, metadata, [&](std::span<const std::byte> bytes) {
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  return text;
}

void WriteSafetensors(const std::filesystem::path& path,
                      std::span<const NamedTensorView> tensors,
                      const SafetensorsMetadata& metadata) {
  AtomicFile file(path);
  Encode(tensors, metadata,
         [&](std::span<const std::byte> bytes) { file.Write(bytes); });
  file.Commit();
}

}  // namespace replicant
