#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/runtime/variable_store.h"

// Models as safetensors files with PyTorch's names: '.' for the '/' of our
// variables, whose shapes are PyTorch's already. Averages
// (core/nn/optimizers.h) have the names of the variables that they are of.
namespace replicant::learner {

// Returns the averages among `names`, or all of them if there is none.
std::vector<std::string> AveragesIn(std::vector<std::string> names);

// Sets the variables `names` of `store`; others of the file are ignored. Throws
// IoError, without a change, for a file that cannot be read, lacks one or has
// one of another type or shape.
void ReadModel(const std::filesystem::path& path,
               const std::vector<std::string>& names,
               runtime::VariableStore* store);

// Writes the variables `names`. Each batch norm also gets PyTorch's counter
// num_batches_tracked, which is `step`. Throws IoError.
void WriteModel(const std::filesystem::path& path,
                const std::vector<std::string>& names, int64_t step,
                const runtime::VariableStore& store);

}  // namespace replicant::learner
