#pragma once

#include <pjrt_c_api.h>

#include <optional>

#include "core/tensor/dtype.h"

namespace replicant::pjrt {

PJRT_Buffer_Type ToPjrt(DType dtype);
// Not set for one that we do not have.
std::optional<DType> FromPjrt(PJRT_Buffer_Type type);

}  // namespace replicant::pjrt
