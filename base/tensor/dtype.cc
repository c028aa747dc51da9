#include "base/tensor/dtype.h"

#include <bit>

namespace replicant {
namespace {

static_assert(std::endian::native == std::endian::little,
              "files and messages hold the bytes of memory as they are");
static_assert(sizeof(bool) == 1);

struct DTypeInfo {
  std::string_view name;
  size_t size_bytes;
};

// indexed by DType
constexpr DTypeInfo kInfos[] = {{"f32", 4}, {"f64", 8}, {"bf16", 2}, {"u8", 1},
                                {"i32", 4}, {"i64", 8}, {"bool", 1}};
static_assert(std::size(kInfos) == kAllDTypes.size());

}  // namespace

size_t DTypeSize(DType dtype) {
  return kInfos[static_cast<size_t>(dtype)].size_bytes;
}

std::string_view DTypeName(DType dtype) {
  return kInfos[static_cast<size_t>(dtype)].name;
}

std::optional<DType> ParseDType(std::string_view name) {
  for (const DType dtype : kAllDTypes) {
    if (DTypeName(dtype) == name) return dtype;
  }
  return std::nullopt;
}

}  // namespace replicant
