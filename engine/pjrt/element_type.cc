#include "engine/pjrt/element_type.h"

namespace replicant::pjrt {

PJRT_Buffer_Type ToPjrt(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return PJRT_Buffer_Type_F32;
    case DType::kF64:
      return PJRT_Buffer_Type_F64;
    case DType::kBF16:
      return PJRT_Buffer_Type_BF16;
    case DType::kU8:
      return PJRT_Buffer_Type_U8;
    case DType::kI32:
      return PJRT_Buffer_Type_S32;
    case DType::kI64:
      return PJRT_Buffer_Type_S64;
    case DType::kBool:
      break;
  }
  return PJRT_Buffer_Type_PRED;
}

std::optional<DType> FromPjrt(PJRT_Buffer_Type type) {
  for (const DType dtype : kAllDTypes) {
    if (ToPjrt(dtype) == type) return dtype;
  }
  return std::nullopt;
}

}  // namespace replicant::pjrt
