#include "replay/store/segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/fs.h"

namespace replicant::replay {
namespace {

constexpr uint32_t kMagic = 0x314c5352;  // "RSL1"
constexpr uint32_t kVersion = 2;
constexpr uint32_t kOldestVersion = 1;

struct SegmentHeader {
  uint32_t magic, version;
  uint64_t number;
};
static_assert(sizeof(SegmentHeader) == kSegmentHeaderBytes);

struct RecordHeader {
  uint32_t length, crc;
  uint64_t serial, writer, sequence;
};
static_assert(sizeof(RecordHeader) == kRecordHeaderBytes);

uint32_t ChecksumOf(const RecordHeader& header,
                    std::span<const std::byte> block) {
  const auto bytes = std::as_bytes(std::span(&header, 1));
  // the length stands before the checksum and is covered as well
  uint32_t crc = Crc32c(bytes.first(4));
  crc = Crc32c(bytes.subspan(8), crc);
  return Crc32c(block, crc);
}

// The record at `offset`, or nullopt if there is no whole one.
std::optional<SegmentRecord> RecordAt(std::span<const std::byte> file,
                                      int64_t offset) {
  const auto size = static_cast<int64_t>(file.size());
  RecordHeader header;
  if (offset < kSegmentHeaderBytes || offset > size - kRecordHeaderBytes) {
    return std::nullopt;
  }
  std::memcpy(&header, file.data() + offset, sizeof(header));
  if (size - offset - kRecordHeaderBytes < int64_t{header.length}) {
    return std::nullopt;
  }
  const auto block = file.subspan(
      static_cast<size_t>(offset + kRecordHeaderBytes), header.length);
  if (ChecksumOf(header, block) != header.crc) return std::nullopt;
  return SegmentRecord{header.serial, header.writer, header.sequence, block};
}

std::string ReadAndCheckHeader(const std::filesystem::path& path,
                               uint64_t number) {
  std::string text = ReadFile(path);
  SegmentHeader header = {};
  if (text.size() >= sizeof(header)) {
    std::memcpy(&header, text.data(), sizeof(header));
  }
  if (header.magic != kMagic || header.version < kOldestVersion ||
      header.version > kVersion || header.number != number) {
    throw IoError(fmt::format("{}: not segment {} of version {} to {}",
                              path.string(), number, kOldestVersion, kVersion));
  }
  return text;
}

}  // namespace

std::filesystem::path SegmentPath(const std::filesystem::path& folder,
                                  uint64_t number) {
  return folder / fmt::format("segment-{:08}.log", number);
}

SegmentWriter::SegmentWriter(std::filesystem::path path, uint64_t number)
    : path_(std::move(path)), number_(number) {
  fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) throw IoError::FromErrno("create", path_, errno);
  const SegmentHeader header = {kMagic, kVersion, number};
  const ssize_t written = ::write(fd_, &header, sizeof(header));
  if (written != ssize_t{sizeof(header)}) {
    const int error = written < 0 ? errno : ENOSPC;
    ::close(fd_);
    ::unlink(path_.c_str());
    throw IoError::FromErrno("write", path_, error);
  }
  size_bytes_ = kSegmentHeaderBytes;
}

SegmentWriter::~SegmentWriter() { ::close(fd_); }

int64_t SegmentWriter::Append(const SegmentRecord& record) {
  RecordHeader header = {.length = static_cast<uint32_t>(record.block.size()),
                         .serial = record.serial,
                         .writer = record.writer,
                         .sequence = record.sequence};
  header.crc = ChecksumOf(header, record.block);
  iovec parts[] = {
      {&header, sizeof(header)},
      {const_cast<std::byte*>(record.block.data()), record.block.size()}};
  const auto size = static_cast<ssize_t>(sizeof(header) + record.block.size());
  ssize_t written;
  do {
    written = ::pwritev(fd_, parts, 2, size_bytes_);
  } while (written < 0 && errno == EINTR);
  if (written != size) {
    // no record may follow an incomplete one
    const int error = written < 0 ? errno : ENOSPC;
    if (::ftruncate(fd_, size_bytes_) != 0) {
      throw IoError::FromErrno("truncate after a failed write", path_, errno);
    }
    throw IoError::FromErrno("append", path_, error);
  }
  const int64_t offset = size_bytes_;
  size_bytes_ += size;
  return offset;
}

void SegmentWriter::Sync() const {
  if (::fdatasync(fd_) != 0) throw IoError::FromErrno("fsync", path_, errno);
}

void ReadRecords(const std::filesystem::path& path, uint64_t number,
                 std::span<const int64_t> offsets, const RecordVisitor& visit) {
  const std::string text = ReadAndCheckHeader(path, number);
  const auto file = std::as_bytes(std::span(text));
  for (const int64_t offset : offsets) {
    const auto record = RecordAt(file, offset);
    if (!record.has_value()) {
      throw IoError(fmt::format("{}: no whole record at byte {} of {}",
                                path.string(), offset, file.size()));
    }
    visit(offset, *record);
  }
}

int64_t ReadAllRecords(const std::filesystem::path& path, uint64_t number,
                       const RecordVisitor& visit) {
  const std::string text = ReadAndCheckHeader(path, number);
  const auto file = std::as_bytes(std::span(text));
  int64_t offset = kSegmentHeaderBytes;
  while (const auto record = RecordAt(file, offset)) {
    visit(offset, *record);
    offset += kRecordHeaderBytes + static_cast<int64_t>(record->block.size());
  }
  return static_cast<int64_t>(file.size()) - offset;
}

}  // namespace replicant::replay
