#include "replay/store/disk_tier.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/fs.h"
#include "replay/store/numbered_files.h"
#include "replay/store/segment.h"

namespace replicant::replay {
namespace {

constexpr int64_t kNumSegments = 64;

std::filesystem::path TierPath(const std::filesystem::path& folder,
                               uint64_t number) {
  return folder / fmt::format("tier-{}.tmp", number);
}

int64_t RecordBytes(const Chunk& chunk) {
  return kRecordHeaderBytes + static_cast<int64_t>(chunk.block.size());
}

DiskTierConfig Checked(DiskTierConfig config) {
  if (config.max_bytes >= kMinDiskTierBytes) return config;
  throw InvalidArgument(fmt::format("disk tier: max_bytes {} must be >= {}",
                                    config.max_bytes, kMinDiskTierBytes));
}

}  // namespace

// A file without a name, and its mapping.
class DiskTier::Segment {
 public:
  // Throws IoError.
  Segment(const std::filesystem::path& path, uint64_t number,
          int64_t capacity_bytes)
      : capacity_bytes_(capacity_bytes), writer_(path, number) {
    std::error_code error;
    std::filesystem::remove(path, error);
    memory_ = ::mmap(nullptr, static_cast<size_t>(capacity_bytes), PROT_READ,
                     MAP_SHARED, writer_.fd(), 0);
    if (memory_ == MAP_FAILED) throw IoError::FromErrno("map", path, errno);
    // chunks are read in random order: no read-ahead
    ::madvise(memory_, static_cast<size_t>(capacity_bytes), MADV_RANDOM);
  }
  ~Segment() { ::munmap(memory_, static_cast<size_t>(capacity_bytes_)); }
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  int64_t size_bytes() const { return writer_.size_bytes(); }
  bool HasRoomFor(const Chunk& chunk) const {
    return size_bytes() + RecordBytes(chunk) <= capacity_bytes_;
  }
  // Returns the block in the mapping.
  std::span<const std::byte> Append(const Chunk& chunk) {
    const int64_t offset = writer_.Append(
        {chunk.serial, chunk.writer, chunk.sequence, chunk.block});
    return {
        static_cast<const std::byte*>(memory_) + offset + kRecordHeaderBytes,
        chunk.block.size()};
  }

 private:
  const int64_t capacity_bytes_;
  SegmentWriter writer_;
  void* memory_ = nullptr;
};

DiskTier::DiskTier(DiskTierConfig config)
    : config_(Checked(std::move(config))),
      segment_bytes_(config_.max_bytes / kNumSegments) {
  MakeFolders(config_.folder);
  for (const uint64_t number : ListNumbered(config_.folder, "tier", "tmp")) {
    std::error_code error;
    std::filesystem::remove(TierPath(config_.folder, number), error);
  }
}

int64_t DiskTier::size_bytes() const {
  int64_t size = 0;
  std::erase_if(uses_, [&](const std::weak_ptr<FileUse>& weak) {
    const auto use = weak.lock();
    if (use != nullptr) size += use->size_bytes;
    return use == nullptr;
  });
  return size;
}

bool DiskTier::HasRoomFor(const Chunk& chunk) const {
  return size_bytes() + kSegmentHeaderBytes + RecordBytes(chunk) <=
         config_.max_bytes;
}

DiskTier::Moved DiskTier::Write(const Chunk& chunk, const StepShape& shape) {
  if (open_ == nullptr || !open_->HasRoomFor(chunk)) {
    open_use_.reset();
    open_ = std::make_shared<Segment>(
        TierPath(config_.folder, next_number_), next_number_,
        std::max(segment_bytes_, kSegmentHeaderBytes + RecordBytes(chunk)));
    ++next_number_;
    open_use_ = std::make_shared<FileUse>();
    uses_.push_back(open_use_);
  }
  auto moved = std::make_shared<Chunk>(open_->Append(chunk), open_, shape);
  open_use_->size_bytes = open_->size_bytes();
  moved->serial = chunk.serial;
  moved->writer = chunk.writer;
  moved->sequence = chunk.sequence;
  return {std::move(moved), open_use_};
}

}  // namespace replicant::replay
