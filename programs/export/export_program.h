#pragma once

#include "programs/run/invocation.h"

namespace replicant::programs {

// Makes the export: it writes the model of a checkpoint for other programs, as
// safetensors or as ONNX, or the training steps of a configuration as StableHLO
// modules.
Program ExportProgram();

}  // namespace replicant::programs
