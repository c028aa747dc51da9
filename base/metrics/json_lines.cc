#include "base/metrics/json_lines.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/metrics/rewind.h"
#include "base/utf8.h"

namespace replicant::metrics {
namespace {

constexpr size_t kMaxLineBytes = size_t{1} << 20;

std::string QuoteText(std::string_view text) {
  return nlohmann::json(ToValidUtf8(text)).dump();
}

std::string FormatNumber(double value) {
  if (std::isnan(value)) return "\"NaN\"";
  if (std::isinf(value)) return value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  return nlohmann::json(value).dump();
}

// The last `size` bytes of an open file, or all if it holds fewer.
std::string ReadTail(int fd, const std::filesystem::path& path,
                     int64_t file_size, size_t size) {
  std::string tail(std::min(size, static_cast<size_t>(file_size)), '\0');
  size_t done = 0;
  while (done < tail.size()) {
    const auto offset = file_size - static_cast<int64_t>(tail.size()) +
                        static_cast<int64_t>(done);
    const ssize_t count =
        ::pread(fd, tail.data() + done, tail.size() - done, offset);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      throw IoError::FromErrno("read", path, count < 0 ? errno : EIO);
    }
    done += static_cast<size_t>(count);
  }
  return tail;
}

// Cuts a torn line off the end of a file, if there is one.
void CutTornLine(int fd, const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) throw IoError::FromErrno("stat", path, errno);
  if (!S_ISREG(status.st_mode) || status.st_size == 0) return;

  // one byte more than a line: its newline
  const std::string tail =
      ReadTail(fd, path, status.st_size, kMaxLineBytes + 1);
  if (tail.back() == '\n') return;
  // npos + 1 is 0: the file may be a single line
  const size_t start = tail.rfind('\n') + 1;
  // never cut bytes of another program
  const bool is_ours =
      tail[start] == '{' &&
      (start > 0 || tail.size() == static_cast<size_t>(status.st_size));
  if (!is_ours) {
    throw IoError(fmt::format(
        "{}: the file does not end with a line of JSON; hint: name another "
        "file",
        path.string()));
  }
  const auto torn_bytes = static_cast<int64_t>(tail.size() - start);
  spdlog::warn("{}: cut off a torn line of {} bytes", path.string(),
               torn_bytes);
  if (::ftruncate(fd, status.st_size - torn_bytes) != 0) {
    throw IoError::FromErrno("truncate", path, errno);
  }
}

// Checks the options and prepares the file for appending.
std::filesystem::path PrepareFile(const JsonLinesOptions& options) {
  if (options.flush_interval < Clock::Duration::zero()) {
    throw InvalidArgument(
        fmt::format("JsonLinesWriter: flush_interval must be >= 0, got {} ns",
                    options.flush_interval.count()));
  }
  const int fd = ::open(options.path.c_str(), O_RDWR | O_CLOEXEC);
  // AppendFile makes a missing file
  if (fd < 0 && errno == ENOENT) return options.path;
  if (fd < 0) throw IoError::FromErrno("open", options.path, errno);
  try {
    CutTornLine(fd, options.path);
  } catch (...) {
    ::close(fd);
    throw;
  }
  ::close(fd);
  return options.path;
}

}  // namespace

JsonObject& JsonObject::Add(std::string_view key, double value) {
  return AddMember(key, FormatNumber(value));
}

JsonObject& JsonObject::Add(std::string_view key, std::string_view text) {
  return AddMember(key, QuoteText(text));
}

JsonObject& JsonObject::Add(std::string_view key,
                            std::span<const double> values) {
  std::string json = "[";
  for (const double value : values) {
    if (json.size() > 1) json += ',';
    json += FormatNumber(value);
  }
  return AddMember(key, json + "]");
}

JsonObject& JsonObject::AddMember(std::string_view key, std::string_view json) {
  const std::string quoted_key = QuoteText(key);
  const bool is_new = keys_.insert(quoted_key).second;
  REPLICANT_CHECK(is_new, "JSON key {} is added twice", quoted_key);
  if (!members_.empty()) members_ += ',';
  members_ += quoted_key;
  members_ += ':';
  members_ += json;
  return *this;
}

JsonLinesWriter::JsonLinesWriter(JsonLinesOptions options, Clock& clock)
    : options_(std::move(options)),
      clock_(clock),
      file_(PrepareFile(options_), AppendFile::Mode::kAppend,
            {.disk = options_.disk, .header = "", .clock = &clock}),
      last_flush_(clock.Now()) {}

void JsonLinesWriter::Write(const JsonObject& object) {
  const std::string line = object.ToString() + "\n";
  if (line.size() > kMaxLineBytes) {
    throw InvalidArgument(fmt::format("{}: a line may have {} bytes, got {}",
                                      options_.path.string(), kMaxLineBytes,
                                      line.size()));
  }
  MutexLock lock(mutex_);
  file_.Append(line);
  const Clock::TimePoint now = clock_.Now();
  if (now - last_flush_ < options_.flush_interval) return;
  last_flush_ = now;
  file_.Flush();
}

int64_t JsonLinesWriter::num_dropped() const {
  MutexLock lock(mutex_);
  return file_.num_dropped();
}

void JsonLinesWriter::Rewind(int64_t step) {
  MutexLock lock(mutex_);
  file_.FlushThen([path = options_.path, step] { CutJsonLines(path, step); });
}

void JsonLinesWriter::Flush() {
  MutexLock lock(mutex_);
  last_flush_ = clock_.Now();
  file_.Flush();
}

}  // namespace replicant::metrics
