#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <span>
#include <string>

namespace replicant::replay {

// The file of one checkpoint; see replay/checkpointer.h for its form.
struct CheckpointFile {
  uint64_t id = 0;
  uint64_t journal_segment = 0;
  std::string bytes;  // of the whole file

  // The snapshot within `bytes`.
  std::span<const std::byte> snapshot() const;
};

// "checkpoint-00000012.ckpt" in `folder`.
std::filesystem::path CheckpointPath(const std::filesystem::path& folder,
                                     uint64_t id);

// Writes the file whole or not at all. Throws IoError.
void WriteCheckpointFile(const std::filesystem::path& folder, uint64_t id,
                         uint64_t journal_segment,
                         std::span<const std::byte> snapshot);

// Throws IoError if the file is missing, cut off or damaged.
CheckpointFile ReadCheckpointFile(const std::filesystem::path& folder,
                                  uint64_t id);

// The numbers of the files "PREFIX-NUMBER.EXTENSION" in `folder`. Throws
// IoError if it cannot be read.
std::set<uint64_t> ListNumbered(const std::filesystem::path& folder,
                                const std::string& prefix,
                                const std::string& extension);

}  // namespace replicant::replay
