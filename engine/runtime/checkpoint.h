#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "engine/runtime/variable_store.h"

namespace replicant::runtime {

// Contents of a checkpoint in addition to the variables.
struct CheckpointInfo {
  int64_t step = 0;
  // Anything that the program needs to resume: seeds, configuration, positions.
  std::map<std::string, std::string> metadata;
};

// Values of variables by name, in host memory.
using HostVariables = std::map<std::string, HostTensor>;

// Copies every variable of a store.
HostVariables CopyVariables(const VariableStore& store);

// Writes a checkpoint, which is a folder:
//
//   variables.safetensors  every variable of the store by name, row-major
//   checkpoint.json        {"format": 1, "step": ..., "metadata": {...}}
//
// It is written under another name next to `folder`, flushed to the disk and
// renamed, so that `folder` exists completely or not at all.
//
// Throws IoError if the folder exists or cannot be written, InvalidArgument for
// metadata that is not UTF-8.
void SaveCheckpoint(const std::filesystem::path& folder,
                    const HostVariables& variables, const CheckpointInfo& info);

// Sets every variable of the store. Throws IoError, without changing the store,
// if
// - the folder is not a checkpoint, or has a newer format,
// - it lacks a variable of the store, or has one that the store lacks,
// - a variable has another dtype or shape.
CheckpointInfo LoadCheckpoint(const std::filesystem::path& folder,
                              VariableStore& store);

// As above, for a store with a part of the checkpoint's variables, such as the
// policy of a training.
CheckpointInfo LoadPartOfCheckpoint(const std::filesystem::path& folder,
                                    VariableStore& store);
// Sets the variables `names` of the store alone; the checkpoint may lack others
// and have more.
CheckpointInfo LoadPartOfCheckpoint(const std::filesystem::path& folder,
                                    const std::vector<std::string>& names,
                                    VariableStore& store);

// Returns why the checkpoint is incomplete, or "" if it is not: a file is
// missing, cut off or damaged in its structure. Reads no elements.
std::string FindDamage(const std::filesystem::path& folder);

// Reads all but the variables. Throws IoError as LoadCheckpoint() does.
CheckpointInfo ReadCheckpointInfo(const std::filesystem::path& folder);

}  // namespace replicant::runtime
