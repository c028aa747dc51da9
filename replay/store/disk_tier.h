#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "replay/format/chunk.h"

namespace replicant::replay {

inline constexpr int64_t kMinDiskTierBytes = int64_t{1} << 20;

struct DiskTierConfig {
  std::filesystem::path folder;
  int64_t max_bytes = 0;  // 0: no disk tier
};

// Holds the chunks that do not fit into memory on disk.
//
// Chunks are appended to segment files (replay/store/segment.h) of about
// max_bytes / 64. The files are unlinked, so none remains however the process
// ends. A sample reads its chunks through a mapping of the file, page by page.
// A file is deleted with the last of its chunks; until then its full size
// counts.
//
// A disk error during a read ends the process (SIGBUS), as a memory error
// would; the run then resumes from its checkpoint.
//
// Thread-safety: one thread at a time; the chunks can be read by any.
class DiskTier {
 public:
  // Makes the folder if it is missing, and removes files that an earlier
  // process could not unlink. Throws IoError, and InvalidArgument for max_bytes
  // below kMinDiskTierBytes.
  explicit DiskTier(DiskTierConfig config);
  DiskTier(const DiskTier&) = delete;
  DiskTier& operator=(const DiskTier&) = delete;

  // Whether `chunk` fits below max_bytes.
  bool HasRoomFor(const Chunk& chunk) const;

  // A chunk with its bytes on disk. The tier counts its file while `use` lives;
  // the file itself remains until the last reader has released `chunk`.
  struct Moved {
    std::shared_ptr<const Chunk> chunk;
    std::shared_ptr<const void> use;
  };
  // Throws IoError, for example if the disk is full.
  Moved Write(const Chunk& chunk, const StepShape& shape);

  // Total size of the files that hold a chunk in use.
  int64_t size_bytes() const;
  int64_t max_bytes() const { return config_.max_bytes; }

 private:
  class Segment;
  struct FileUse {
    int64_t size_bytes = 0;
  };

  const DiskTierConfig config_;
  const int64_t segment_bytes_;
  uint64_t next_number_ = 1;
  // the file that takes new chunks, and its use
  std::shared_ptr<Segment> open_;
  std::shared_ptr<FileUse> open_use_;
  // one per file that may still be needed
  mutable std::vector<std::weak_ptr<FileUse>> uses_;
};

}  // namespace replicant::replay
