#include "replay/checkpoint_file.h"

#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <system_error>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/base/fs.h"

namespace replicant::replay {
namespace {

constexpr uint32_t kMagic = 0x314b4352;  // "RCK1"
constexpr uint32_t kVersion = 1;

struct Header {
  uint32_t magic, version;
  uint64_t id, journal_segment, length;
  uint32_t crc, zero;
};
static_assert(sizeof(Header) == 40);

uint32_t ChecksumOf(Header header, std::span<const std::byte> snapshot) {
  header.crc = 0;
  return Crc32c(snapshot, Crc32c(std::as_bytes(std::span(&header, 1))));
}

}  // namespace

std::span<const std::byte> CheckpointFile::snapshot() const {
  return std::as_bytes(std::span(bytes)).subspan(sizeof(Header));
}

std::filesystem::path CheckpointPath(const std::filesystem::path& folder,
                                     uint64_t id) {
  return folder / fmt::format("checkpoint-{:08}.ckpt", id);
}

void WriteCheckpointFile(const std::filesystem::path& folder, uint64_t id,
                         uint64_t journal_segment,
                         std::span<const std::byte> snapshot) {
  Header header = {.magic = kMagic,
                   .version = kVersion,
                   .id = id,
                   .journal_segment = journal_segment,
                   .length = snapshot.size()};
  header.crc = ChecksumOf(header, snapshot);
  AtomicFile file(CheckpointPath(folder, id));
  file.Write(std::as_bytes(std::span(&header, 1)));
  file.Write(snapshot);
  file.Commit();
}

CheckpointFile ReadCheckpointFile(const std::filesystem::path& folder,
                                  uint64_t id) {
  const std::filesystem::path path = CheckpointPath(folder, id);
  CheckpointFile file;
  file.bytes = ReadFile(path);
  Header header = {};
  if (file.bytes.size() >= sizeof(header)) {
    std::memcpy(&header, file.bytes.data(), sizeof(header));
  }
  if (header.magic != kMagic || header.version != kVersion) {
    throw IoError(
        fmt::format("{}: {} bytes that are no checkpoint of version "
                    "{}",
                    path.string(), file.bytes.size(), kVersion));
  }
  if (header.length != file.bytes.size() - sizeof(header)) {
    throw IoError(fmt::format("{}: {} bytes, where its header says {}",
                              path.string(), file.bytes.size(),
                              header.length + sizeof(header)));
  }
  if (header.id != id || ChecksumOf(header, file.snapshot()) != header.crc) {
    throw IoError(
        fmt::format("{}: the checksum does not match", path.string()));
  }
  file.id = id;
  file.journal_segment = header.journal_segment;
  return file;
}

std::set<uint64_t> ListNumbered(const std::filesystem::path& folder,
                                const std::string& prefix,
                                const std::string& extension) {
  std::set<uint64_t> numbers;
  std::error_code error;
  std::filesystem::directory_iterator entries(folder, error);
  for (; !error && entries != std::filesystem::directory_iterator();
       entries.increment(error)) {
    const std::string name = entries->path().filename().string();
    const std::string start = prefix + "-", end = "." + extension;
    if (!name.starts_with(start) || !name.ends_with(end)) continue;
    uint64_t number = 0;
    const char* const first = name.data() + start.size();
    const char* const last = name.data() + name.size() - end.size();
    const auto result = std::from_chars(first, last, number);
    if (result.ec == std::errc() && result.ptr == last && number > 0) {
      numbers.insert(number);
    }
  }
  if (error) throw IoError::FromErrno("list", folder, error.value());
  return numbers;
}

}  // namespace replicant::replay
