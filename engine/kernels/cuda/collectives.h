#pragma once

#include <memory>

#include "engine/kernels/cuda/device.h"
#include "engine/kernels/device_collectives.h"

namespace replicant::kernels::cuda {

std::unique_ptr<DeviceCollectives> MakeCollectivesOn(
    std::shared_ptr<const Device> device);

}  // namespace replicant::kernels::cuda
