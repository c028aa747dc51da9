#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "replay/format/group.h"

namespace replicant::replay {

inline constexpr int64_t kMinDiskTierBytes = int64_t{1} << 20;

struct DiskTierConfig {
  std::filesystem::path folder;
  int64_t max_bytes = 0;  // 0: no disk tier
};

// Holds the step groups that do not fit into memory on disk.
//
// Groups are appended to segment files (replay/store/segment.h) of about
// max_bytes / 64. The files are unlinked, so none remains however the process
// ends. A sample reads its groups through a mapping of the file, page by page.
// A file is deleted with the last of its groups; until then its full size
// counts.
//
// A disk error during a read ends the process (SIGBUS), as a memory error
// would; the run then resumes from its checkpoint.
//
// Thread-safety: one thread at a time; the groups can be read by any.
class DiskTier {
 public:
  // Makes the folder if it is missing, and removes files that an earlier
  // process could not unlink. Throws IoError, and InvalidArgument for max_bytes
  // below kMinDiskTierBytes.
  explicit DiskTier(DiskTierConfig config);
  DiskTier(const DiskTier&) = delete;
  DiskTier& operator=(const DiskTier&) = delete;

  // Whether `group` fits below max_bytes.
  bool HasRoomFor(const Group& group) const;

  // A group with its bytes on disk. The tier counts its file while `use` lives;
  // the file itself remains until the last reader has released `group`.
  struct Moved {
    std::shared_ptr<const Group> group;
    std::shared_ptr<const void> use;
  };
  // Throws IoError, for example if the disk is full.
  Moved Write(const Group& group, const StepShape& shape);

  // Total size of the files that hold a group in use.
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
  // the file that takes new groups, and its use
  std::shared_ptr<Segment> open_;
  std::shared_ptr<FileUse> open_use_;
  // one per file that may still be needed
  mutable std::vector<std::weak_ptr<FileUse>> uses_;
};

}  // namespace replicant::replay
