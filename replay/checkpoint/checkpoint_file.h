#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace replicant::replay {

// The head of a checkpoint file, before its snapshot.
// replay/checkpoint/checkpointer.h has the format of the file.
struct CheckpointHead {
  uint64_t number = 0;
  // The client's id; 0 for a periodic checkpoint.
  uint64_t id = 0;
  // First segment of the journal that follows this checkpoint.
  uint64_t journal_segment = 0;
  std::set<uint64_t> segments;  // segments that hold its chunks
};

// A complete checkpoint file in memory.
struct CheckpointFile {
  CheckpointHead head;
  std::string bytes;  // of the whole file
  size_t snapshot_begin = 0;

  // The snapshot within `bytes`.
  std::span<const std::byte> snapshot() const;
};

// "checkpoint-00000012.ckpt" in `folder`.
std::filesystem::path CheckpointPath(const std::filesystem::path& folder,
                                     uint64_t number);

// Writes the file atomically. Throws IoError.
void WriteCheckpointFile(const std::filesystem::path& folder,
                         const CheckpointHead& head,
                         std::span<const std::byte> snapshot);

// Throws IoError if the file is missing, truncated or damaged.
CheckpointFile ReadCheckpointFile(const std::filesystem::path& folder,
                                  uint64_t number);
// Reads only the head. Throws IoError if the head is missing or damaged; damage
// after it goes unnoticed.
CheckpointHead ReadCheckpointHead(const std::filesystem::path& folder,
                                  uint64_t number);

}  // namespace replicant::replay
