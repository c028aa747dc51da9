#pragma once

#include "programs/program.h"

namespace replicant::programs {

// Makes the export: it writes the model of a checkpoint for other programs, as
// safetensors or as ONNX.
Program ExportProgram();

}  // namespace replicant::programs
