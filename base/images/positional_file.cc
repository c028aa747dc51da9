#include "base/images/positional_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/error.h"
#include "base/images/image.h"

namespace replicant::data {
namespace {

// Throws the error of a system call on a file.
[[noreturn]] void ThrowErrno(const char* what,
                             const std::filesystem::path& path,
                             int error_number) {
  std::string text = IoError::FromErrno(what, path, error_number).what();
  if (error_number == ENOENT) throw DamagedImage(text);
  if (error_number == EMFILE) {
    text += "; hint: raise the limit of the process, ulimit -n";
  }
  throw IoError(text);
}

}  // namespace

PositionalFile::PositionalFile(const std::filesystem::path& path)
    : path_(path), fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (fd_ < 0) ThrowErrno("cannot open", path, errno);
}

PositionalFile::~PositionalFile() { close(fd_); }

uint64_t PositionalFile::Size() const {
  struct stat status = {};
  if (fstat(fd_, &status) != 0) ThrowErrno("cannot read", path_, errno);
  return static_cast<uint64_t>(status.st_size);
}

void PositionalFile::Read(uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t count =
        pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) ThrowErrno("cannot read", path_, errno);
    if (count == 0) {
      throw DamagedImage(
          fmt::format("{}: ends at byte {}", path_.string(), offset));
    }
    offset += static_cast<uint64_t>(count);
    out = out.subspan(static_cast<size_t>(count));
  }
}

}  // namespace replicant::data
