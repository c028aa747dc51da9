#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "engine/runtime/variable_store.h"

// Models as safetensors files with PyTorch's names: '.' for the '/' of our
// variables, whose shapes are already PyTorch's. Averages
// (engine/nn/optimizers.h) are stored under the names of their variables.
namespace replicant::learner {

// Returns the averages among `names`, or all `names` if there are none.
std::vector<std::string> AveragesIn(std::vector<std::string> names);

// Sets the variables `names` of `store` and ignores the file's others. Floating
// types (F16, BF16, F64, F8_*) become f32. Throws IoError, changing nothing, if
// the file cannot be read, or lacks a variable or has it with another type or
// shape.
void ReadModel(const std::filesystem::path& path,
               const std::vector<std::string>& names,
               runtime::VariableStore* store);

// Writes the variables `names`. Each batch norm also gets PyTorch's counter
// num_batches_tracked, which is `step`. Throws IoError.
void WriteModel(const std::filesystem::path& path,
                const std::vector<std::string>& names, int64_t step,
                const runtime::VariableStore& store);

}  // namespace replicant::learner
