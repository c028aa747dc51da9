#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>

namespace replicant::replay {

// Segments are files of chunks, for checkpoints and the journal: a header,
// then records one after the other. Numbers are little-endian:
//
//   header: magic "RSL1" u32, version 2 u32, number of the segment u64
//   record: length of the block u32, CRC-32C u32 of all that follows,
//           serial u64, writer u64, sequence u64, the chunk's block
//
// A record of serial 0 holds the rate limiters' states instead of a chunk
// (EncodeLimiters of replay/table/snapshot.h). Version 1, which is still read,
// has none.
//
// A crash may leave a partial record at the end. Its length or checksum reveals
// it, and it is never read as a chunk.
struct SegmentRecord {
  uint64_t serial = 0;
  uint64_t writer = 0;
  uint64_t sequence = 0;
  std::span<const std::byte> block;
};
inline constexpr int64_t kSegmentHeaderBytes = 16;
inline constexpr int64_t kRecordHeaderBytes = 32;

// "segment-00000012.log" in `folder`.
std::filesystem::path SegmentPath(const std::filesystem::path& folder,
                                  uint64_t number);

// Appends records to a new segment.
//
// Thread-safety: one thread at a time.
class SegmentWriter {
 public:
  // Creates the file. Throws IoError, for example if it exists.
  SegmentWriter(std::filesystem::path path, uint64_t number);
  ~SegmentWriter();
  SegmentWriter(const SegmentWriter&) = delete;
  SegmentWriter& operator=(const SegmentWriter&) = delete;

  // Appends a record and returns its offset. On return the operating system has
  // the bytes: they survive a crash of this process, but not of the machine.
  // Throws IoError, leaving the segment unchanged, for example if the disk is
  // full.
  int64_t Append(const SegmentRecord& record);
  // Forces all records appended so far to disk; may run concurrently with
  // Append(). Throws IoError.
  void Sync() const;

  uint64_t number() const { return number_; }
  // The descriptor of the file, open for reading and writing.
  int fd() const { return fd_; }
  int64_t size_bytes() const { return size_bytes_; }

 private:
  const std::filesystem::path path_;
  const uint64_t number_;
  int fd_ = -1;
  int64_t size_bytes_ = 0;
};

using RecordVisitor =
    std::function<void(int64_t offset, const SegmentRecord& record)>;

// Reads the records at `offsets` and passes each to `visit`, in that order.
// Throws IoError with file and offset if the file is not segment `number` or
// has no whole record there.
void ReadRecords(const std::filesystem::path& path, uint64_t number,
                 std::span<const int64_t> offsets, const RecordVisitor& visit);

// Reads all records up to the end of the file, or up to the first partial one,
// which a crash has left. Returns the number of unread bytes. Throws IoError if
// the file is not segment `number`.
int64_t ReadAllRecords(const std::filesystem::path& path, uint64_t number,
                       const RecordVisitor& visit);

}  // namespace replicant::replay
