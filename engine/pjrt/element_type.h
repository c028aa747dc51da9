#pragma once

#include <pjrt_c_api.h>

#include <optional>

#include "base/tensor/dtype.h"

namespace replicant::pjrt {

PJRT_Buffer_Type ToPjrt(DType dtype);
// std::nullopt for a type that DType lacks.
std::optional<DType> FromPjrt(PJRT_Buffer_Type type);

}  // namespace replicant::pjrt
