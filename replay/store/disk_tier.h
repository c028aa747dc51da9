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

// Where step groups go that memory has no room for.
//
// Groups are appended to segment files (replay/store/segment.h) that have no
// name any more, so that nothing is left of them however the process ends, and
// are read back through a mapping of the file, page by page, as a sample needs
// them. A file goes when the last of its groups does, and counts in full until
// then; it takes about 1/64 of max_bytes.
//
// A disk that fails while it is read ends the process (SIGBUS), as memory that
// fails would; the checkpoint is what is left then.
//
// Thread-safety: one thread at a time; the groups can be read by any.
class DiskTier {
 public:
  // Makes the folder if it is not there, and removes what a process may have
  // left of a file that it had just made. Throws IoError, InvalidArgument for
  // max_bytes below kMinDiskTierBytes.
  explicit DiskTier(DiskTierConfig config);
  DiskTier(const DiskTier&) = delete;
  DiskTier& operator=(const DiskTier&) = delete;

  // Whether `group` fits below max_bytes.
  bool HasRoomFor(const Group& group) const;

  // A group whose bytes lie on the disk, and what tells the tier that it is
  // needed. Whoever reads it after `use` was given up finds it whole: its file
  // goes with the last reader, but is not counted any more.
  struct Moved {
    std::shared_ptr<const Group> group;
    std::shared_ptr<const void> use;
  };
  // Throws IoError, as for a full disk.
  Moved Write(const Group& group, const StepShape& shape);

  // Of the files that hold a group in use.
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
  // what is written to, and its use
  std::shared_ptr<Segment> open_;
  std::shared_ptr<FileUse> open_use_;
  // of the files that may still be needed
  mutable std::vector<std::weak_ptr<FileUse>> uses_;
};

}  // namespace replicant::replay
