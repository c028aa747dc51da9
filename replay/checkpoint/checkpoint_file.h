#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace replicant::replay {

// What the file of one checkpoint says of itself, before its snapshot. The form
// is in replay/checkpoint/checkpointer.h.
struct CheckpointHead {
  uint64_t number = 0;
  // What a client called it, or 0: taken for no client.
  uint64_t id = 0;
  // The journal after it begins in this segment, or a later one.
  uint64_t journal_segment = 0;
  std::set<uint64_t> segments;  // that its groups lie in
};

// A whole one.
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

// Writes the file whole or not at all. Throws IoError.
void WriteCheckpointFile(const std::filesystem::path& folder,
                         const CheckpointHead& head,
                         std::span<const std::byte> snapshot);

// Throws IoError if the file is missing, cut off or damaged.
CheckpointFile ReadCheckpointFile(const std::filesystem::path& folder,
                                  uint64_t number);
// Reads only the head; of damage, it sees that of the head.
CheckpointHead ReadCheckpointHead(const std::filesystem::path& folder,
                                  uint64_t number);

}  // namespace replicant::replay
