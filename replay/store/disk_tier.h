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

// Holds on disk the step groups that memory has no room for.
//
// Groups are appended to segment files (replay/store/segment.h) of about
// max_bytes / 64. The files have no name, so nothing is left of them however
// the process ends. A sample reads its groups through a mapping of the file,
// page by page. A file is deleted with the last of its groups and counts in
// full until then.
//
// A disk error during a read ends the process (SIGBUS), as a memory error
// would; the run then goes on from its checkpoint.
//
// Thread-safety: one thread at a time; the groups can be read by any.
class DiskTier {
 public:
  // Makes the folder if it is missing, and removes files that another process
  // made and could not unlink. Throws IoError, and InvalidArgument for
  // max_bytes below kMinDiskTierBytes.
  explicit DiskTier(DiskTierConfig config);
  DiskTier(const DiskTier&) = delete;
  DiskTier& operator=(const DiskTier&) = delete;

  // Whether `group` fits below max_bytes.
  bool HasRoomFor(const Group& group) const;

  // A group whose bytes are on disk. The tier counts its file while `use`
  // lives; the file itself stays until the last reader has released `group`.
  struct Moved {
    std::shared_ptr<const Group> group;
    std::shared_ptr<const void> use;
  };
  // Throws IoError, for example if the disk is full.
  Moved Write(const Group& group, const StepShape& shape);

  // Bytes of the files that hold a group in use.
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
  // one for each file that may still be needed
  mutable std::vector<std::weak_ptr<FileUse>> uses_;
};

}  // namespace replicant::replay
