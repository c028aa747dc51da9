#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "core/runtime/variable_store.h"

namespace replicant::runtime {

// What a checkpoint holds beside the variables.
struct CheckpointInfo {
  int64_t step = 0;
  // Whatever the program wants to find again: seeds, configuration, positions.
  std::map<std::string, std::string> metadata;
};

// A checkpoint is a folder:
//
//   variables.safetensors  every variable of the store by name, row-major
//   checkpoint.json        {"format": 1, "step": ..., "metadata": {...}}
//
// It is written under another name beside `folder`, forced to the disk and
// renamed, so that `folder` is there whole or not at all.
//
// Throws IoError if the folder is there already or cannot be written.
void SaveCheckpoint(const std::filesystem::path& folder,
                    const VariableStore& store, const CheckpointInfo& info);

// Sets every variable of the store. Throws IoError, leaving the store as it
// was, if
// - the folder is no checkpoint, or of a newer format,
// - it lacks a variable of the store, or holds one that the store has not,
// - a variable has another dtype or shape.
CheckpointInfo LoadCheckpoint(const std::filesystem::path& folder,
                              VariableStore& store);

// The same for a store that has only some of the checkpoint's variables, such
// as a policy out of a training.
CheckpointInfo LoadPartOfCheckpoint(const std::filesystem::path& folder,
                                    VariableStore& store);

// Without the variables. Throws IoError, as LoadCheckpoint() does.
CheckpointInfo ReadCheckpointInfo(const std::filesystem::path& folder);

}  // namespace replicant::runtime
