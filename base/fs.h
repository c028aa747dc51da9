#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace replicant {

// A file that appears whole or not at all.
//
// Bytes go to a temporary file next to `path`; Commit() forces them to the
// disk, renames over `path` and forces the folder. A crash at any point leaves
// either the old file or the new one. Without Commit() the destructor removes
// the temporary file.
//
// Thread-safety: one thread at a time.
class AtomicFile {
 public:
  // `mode` holds the permission bits, less the umask; 0600 for a secret, which
  // is then never readable by others, not even while it is written. Throws
  // IoError if the temporary file cannot be created.
  explicit AtomicFile(std::filesystem::path path, unsigned mode = 0666);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Appends. Throws IoError, for example for a full disk.
  void Write(std::span<const std::byte> bytes);
  void Write(std::string_view text);
  // Throws IoError and leaves the old file, if any.
  void Commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_path_;
  int fd_ = -1;
};

// Writes a whole file through AtomicFile.
void AtomicWriteFile(const std::filesystem::path& path, std::string_view text,
                     unsigned mode = 0666);

// A name next to `path` for a file or folder that is to be renamed to it:
// "PATH.tmp-PID-N". It differs in each call.
std::filesystem::path TemporaryPathOf(const std::filesystem::path& path);

// Removes the files and folders of TemporaryPathOf() in `folder` whose process
// has died, such as the unfinished files of a killed writer, and returns their
// number. Only this host may write to the folder. Errors are ignored.
int RemoveStaleTemporaries(const std::filesystem::path& folder);

// Reads a whole file. Throws IoError if it cannot be read or holds more than
// `max_size_bytes`; nothing is allocated for a file that is too large.
std::string ReadFile(const std::filesystem::path& path,
                     uint64_t max_size_bytes = uint64_t{1} << 40);

// Why there is no file or folder at `path`, for a message: "no such path", or
// what the system says of one that it cannot look at. "": there is one.
std::string WhyMissing(const std::filesystem::path& path);

// Creates a folder and its parents. Throws IoError.
void MakeFolders(const std::filesystem::path& path);

// Forces the entries of a folder, a rename among them, to the disk. Throws
// IoError.
void SyncFolder(const std::filesystem::path& folder);

// A fresh folder under the system's temporary folder, removed with all it
// holds by the destructor.
class TemporaryFolder {
 public:
  // Throws IoError. `name` becomes part of the folder's name.
  explicit TemporaryFolder(std::string_view name = "replicant");
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace replicant
