#include "replay/checkpoint/checkpoint_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/fs.h"

namespace replicant::replay {
namespace {

constexpr uint32_t kMagic = 0x314b4352;  // "RCK1"
constexpr uint32_t kVersion = 3;
constexpr uint32_t kOldestVersion = 2;

struct Header {
  uint32_t magic, version;
  uint64_t number, id, journal_segment, snapshot_bytes;
  uint32_t num_segments, head_crc, snapshot_crc, zero;
};
static_assert(sizeof(Header) == 56);

uint32_t HeadChecksum(Header header, std::span<const std::byte> segments) {
  header.head_crc = 0;
  return Crc32c(segments, Crc32c(std::as_bytes(std::span(&header, 1))));
}

size_t HeadBytes(const Header& header) {
  return sizeof(Header) + sizeof(uint64_t) * size_t{header.num_segments};
}

// Checks the header of the file that begins with `bytes`.
Header ReadHeader(const std::filesystem::path& path,
                  std::span<const std::byte> bytes) {
  Header header = {};
  if (bytes.size() >= sizeof(header)) {
    std::memcpy(&header, bytes.data(), sizeof(header));
  }
  if (header.magic != kMagic || header.version < kOldestVersion ||
      header.version > kVersion) {
    throw IoError(
        fmt::format("{}: its {} bytes are not a checkpoint of version {} to {}",
                    path.string(), std::filesystem::file_size(path),
                    kOldestVersion, kVersion));
  }
  return header;
}

// Checks `bytes`, which hold the whole head.
CheckpointHead DecodeHead(const std::filesystem::path& path,
                          const Header& header,
                          std::span<const std::byte> bytes, uint64_t number) {
  const auto segments =
      bytes.subspan(sizeof(Header), HeadBytes(header) - sizeof(Header));
  if (header.number != number ||
      HeadChecksum(header, segments) != header.head_crc) {
    throw IoError(
        fmt::format("{}: the checksum does not match", path.string()));
  }
  CheckpointHead head = {.number = number,
                         .id = header.id,
                         .journal_segment = header.journal_segment,
                         .segments = {}};
  for (size_t i = 0; i < header.num_segments; ++i) {
    uint64_t segment = 0;
    std::memcpy(&segment, segments.data() + i * sizeof(segment),
                sizeof(segment));
    head.segments.insert(segment);
  }
  return head;
}

}  // namespace

std::span<const std::byte> CheckpointFile::snapshot() const {
  return std::as_bytes(std::span(bytes)).subspan(snapshot_begin);
}

std::filesystem::path CheckpointPath(const std::filesystem::path& folder,
                                     uint64_t number) {
  return folder / fmt::format("checkpoint-{:08}.ckpt", number);
}

void WriteCheckpointFile(const std::filesystem::path& folder,
                         const CheckpointHead& head,
                         std::span<const std::byte> snapshot) {
  const std::vector<uint64_t> list(head.segments.begin(), head.segments.end());
  const auto segments = std::as_bytes(std::span(list));
  Header header = {.magic = kMagic,
                   .version = kVersion,
                   .number = head.number,
                   .id = head.id,
                   .journal_segment = head.journal_segment,
                   .snapshot_bytes = snapshot.size(),
                   .num_segments = static_cast<uint32_t>(list.size()),
                   .snapshot_crc = Crc32c(snapshot)};
  header.head_crc = HeadChecksum(header, segments);
  AtomicFile file(CheckpointPath(folder, head.number));
  file.Write(std::as_bytes(std::span(&header, 1)));
  file.Write(segments);
  file.Write(snapshot);
  file.Commit();
}

CheckpointFile ReadCheckpointFile(const std::filesystem::path& folder,
                                  uint64_t number) {
  const std::filesystem::path path = CheckpointPath(folder, number);
  CheckpointFile file;
  file.bytes = ReadFile(path);
  const auto bytes = std::as_bytes(std::span(file.bytes));
  const Header header = ReadHeader(path, bytes);
  file.snapshot_begin = HeadBytes(header);
  if (file.snapshot_begin > bytes.size() ||
      header.snapshot_bytes != bytes.size() - file.snapshot_begin) {
    throw IoError(fmt::format("{}: has {} bytes, but its header says {}",
                              path.string(), bytes.size(),
                              header.snapshot_bytes + file.snapshot_begin));
  }
  file.head = DecodeHead(path, header, bytes, number);
  if (Crc32c(file.snapshot()) != header.snapshot_crc) {
    throw IoError(
        fmt::format("{}: the checksum does not match", path.string()));
  }
  return file;
}

CheckpointHead ReadCheckpointHead(const std::filesystem::path& folder,
                                  uint64_t number) {
  const std::filesystem::path path = CheckpointPath(folder, number);
  std::ifstream file(path, std::ios::binary);
  if (!file) throw IoError::FromErrno("open", path, errno);
  std::vector<std::byte> bytes(sizeof(Header));
  const auto read = [&](size_t begin) {
    file.read(reinterpret_cast<char*>(bytes.data() + begin),
              static_cast<std::streamsize>(bytes.size() - begin));
    bytes.resize(begin + static_cast<size_t>(file.gcount()));
  };
  read(0);
  const Header header = ReadHeader(path, bytes);
  const size_t head_bytes = HeadBytes(header);
  if (head_bytes <= std::filesystem::file_size(path)) {
    bytes.resize(head_bytes);
    read(sizeof(Header));
  }
  if (bytes.size() != head_bytes) {
    throw IoError(fmt::format("{}: its head is cut off", path.string()));
  }
  return DecodeHead(path, header, bytes, number);
}

}  // namespace replicant::replay
