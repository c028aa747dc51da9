#include "base/tensor/byte_source.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace replicant {
namespace {

class FileSource : public ByteSource {
 public:
  explicit FileSource(std::filesystem::path path)
      : path_(std::move(path)),
        fd_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ < 0) throw IoError::FromErrno("open", path_, errno);
    struct stat status {};
    const int error = ::fstat(fd_, &status) != 0 ? errno
                      : S_ISDIR(status.st_mode)  ? EISDIR
                      : !S_ISREG(status.st_mode) ? ESPIPE
                                                 : 0;
    if (error != 0) {
      ::close(fd_);
      throw IoError::FromErrno("read", path_, error);
    }
    size_bytes_ = static_cast<uint64_t>(status.st_size);
  }
  ~FileSource() override { ::close(fd_); }

  uint64_t size_bytes() const override { return size_bytes_; }

  void ReadAt(uint64_t offset, std::span<std::byte> out) const override {
    REPLICANT_CHECK(offset <= size_bytes_ && out.size() <= size_bytes_ - offset,
                    "{} bytes at {} of {}", out.size(), offset, size_bytes_);
    while (!out.empty()) {
      const ssize_t count =
          ::pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
      if (count < 0) {
        if (errno == EINTR) continue;
        throw IoError::FromErrno("read", path_, errno);
      }
      if (count == 0) {
        throw IoError(fmt::format(
            "{}: became shorter while it was read: it had {} bytes and now "
            "ends at {}",
            path_.string(), size_bytes_, offset));
      }
      offset += static_cast<uint64_t>(count);
      out = out.subspan(static_cast<size_t>(count));
    }
  }

 private:
  const std::filesystem::path path_;
  const int fd_;
  uint64_t size_bytes_ = 0;
};

class MemorySource : public ByteSource {
 public:
  explicit MemorySource(std::span<const std::byte> bytes) : bytes_(bytes) {}

  uint64_t size_bytes() const override { return bytes_.size(); }

  void ReadAt(uint64_t offset, std::span<std::byte> out) const override {
    REPLICANT_CHECK(
        offset <= bytes_.size() && out.size() <= bytes_.size() - offset,
        "{} bytes at {} of {}", out.size(), offset, bytes_.size());
    std::ranges::copy(bytes_.subspan(offset, out.size()), out.begin());
  }

 private:
  const std::span<const std::byte> bytes_;
};

}  // namespace

std::unique_ptr<ByteSource> OpenFile(const std::filesystem::path& path) {
  return std::make_unique<FileSource>(path);
}

std::unique_ptr<ByteSource> BorrowBytes(std::span<const std::byte> bytes) {
  return std::make_unique<MemorySource>(bytes);
}

void CheckBoolBytes(std::span<const std::byte> bytes,
                    const std::string& where) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (std::to_integer<int>(bytes[i]) > 1) {
      throw IoError(fmt::format("{}: bool element {} is {}; allowed: 0 and 1",
                                where, i, std::to_integer<int>(bytes[i])));
    }
  }
}

}  // namespace replicant
