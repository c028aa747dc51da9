#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/config/reader.h"
#include "replay/format/chunk_format.h"

namespace replicant::replay {

// How much of the acknowledged inserts survives a crash.
enum class Durability {
  // A crash loses the steps since the last checkpoint.
  kCheckpoint,
  // A crash of the process loses nothing: every chunk is in the journal before
  // its insert returns. The journal is forced to the disk at checkpoints only,
  // so a crash of the machine loses as much as with kCheckpoint.
  kJournal
};

// "layout.yaml" of a checkpoint folder: the settings of its files.
struct CheckpointLayout {
  StepShape shape;
  Durability durability = Durability::kCheckpoint;

  static CheckpointLayout Read(config::Reader& reader);
};

// Returns std::nullopt if the folder has no layout. Throws IoError or
// ConfigError if it cannot be read.
std::optional<CheckpointLayout> ReadLayout(const std::filesystem::path& folder);
// Throws IoError.
void WriteLayout(const std::filesystem::path& folder,
                 const CheckpointLayout& layout);

// Throws InvalidArgument, naming both shapes, unless the steps of the folder
// have shape `shape`.
void CheckSameShape(const std::filesystem::path& folder,
                    const CheckpointLayout& layout, const StepShape& shape);

}  // namespace replicant::replay
