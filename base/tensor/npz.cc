#include "base/tensor/npz.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <zip.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/tensor/byte_source.h"
#include "base/tensor/npy.h"

namespace replicant {
namespace {

constexpr std::string_view kExtension = ".npy";

// A pair of length and distance stands for up to 258 bytes and takes at least
// 2 bits (RFC 1951): one byte inflates to at most 4 * 258.
constexpr uint64_t kMaxInflation = 1032;

// zlib's default; libzip's own is 9, slower for little gain.
constexpr zip_uint32_t kDeflateLevel = 6;

struct ZipDeleter {
  // drops changes; a written archive is closed first
  void operator()(zip_t* archive) const { ::zip_discard(archive); }
  void operator()(zip_file_t* file) const { ::zip_fclose(file); }
  void operator()(zip_source_t* source) const { ::zip_source_free(source); }
};
using ZipPtr = std::unique_ptr<zip_t, ZipDeleter>;
using ZipFilePtr = std::unique_ptr<zip_file_t, ZipDeleter>;
using ZipSourcePtr = std::unique_ptr<zip_source_t, ZipDeleter>;

// The error of libzip's calls, with its text.
class ZipError {
 public:
  ZipError() { ::zip_error_init(&error_); }
  ~ZipError() { ::zip_error_fini(&error_); }
  ZipError(const ZipError&) = delete;
  ZipError& operator=(const ZipError&) = delete;

  zip_error_t* get() { return &error_; }
  std::string text() { return ::zip_error_strerror(&error_); }

 private:
  zip_error_t error_{};
};

// Why `name` cannot name an array; empty if it can.
std::string_view NameProblem(std::string_view name) {
  if (std::ranges::any_of(name, [](char c) { return c < ' ' && c >= '\0'; })) {
    return "control characters are not allowed";
  }
  if (name.find('\\') != std::string_view::npos) {
    return "a backslash is not allowed; hint: use '/'";
  }
  // each part between slashes
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") {
      return "a name must be relative, without empty, '.' or '..' parts";
    }
    begin = end + 1;
  }
  return {};
}

}  // namespace

struct NpzReader::Archive {
  std::string where;
  uint64_t max_tensor_bytes = 0;
  uint64_t archive_bytes = 0;
  ZipPtr zip;
  std::vector<std::string> names;
  std::map<std::string, uint64_t, std::less<>> index_of_name;

  void Open(zip_source_t* created, ZipError& error);
  void ListEntries();
  // Throws IoError unless the entry's claims fit each other and the limits.
  void CheckEntry(const zip_stat_t& stat, const std::string& entry) const;
};

void NpzReader::Archive::Open(zip_source_t* created, ZipError& error) {
  ZipSourcePtr source(created);
  // libzip would read zero bytes as an archive without entries
  if (archive_bytes == 0) {
    throw IoError(
        fmt::format("{}: is empty; hint: was it copied in full?", where));
  }
  if (source != nullptr) {
    zip.reset(::zip_open_from_source(source.get(), ZIP_RDONLY, error.get()));
    // the archive owns it from now on
    if (zip != nullptr) static_cast<void>(source.release());
  }
  if (zip == nullptr) {
    throw IoError(
        fmt::format("{}: not a readable zip archive: {}", where, error.text()));
  }
  ListEntries();
}

void NpzReader::Archive::ListEntries() {
  const zip_int64_t count = ::zip_get_num_entries(zip.get(), 0);
  for (zip_int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<zip_uint64_t>(i);
    const char* entry = ::zip_get_name(zip.get(), index, ZIP_FL_ENC_GUESS);
    if (entry == nullptr) {
      throw IoError(fmt::format("{}: the name of entry {} is unreadable: {}",
                                where, i, ::zip_strerror(zip.get())));
    }
    std::string_view name = entry;
    if (!name.ends_with(kExtension)) continue;
    name.remove_suffix(kExtension.size());
    const std::string_view problem = NameProblem(name);
    if (!problem.empty()) {
      throw IoError(fmt::format("{}: entry '{}': {}", where, entry, problem));
    }
    if (!index_of_name.emplace(name, index).second) {
      throw IoError(fmt::format(
          "{}: two entries are named '{}'; names must differ", where, entry));
    }
    names.emplace_back(name);
  }
}

void NpzReader::Archive::CheckEntry(const zip_stat_t& stat,
                                    const std::string& entry) const {
  if (stat.encryption_method != ZIP_EM_NONE) {
    throw IoError(
        fmt::format("{}: is encrypted; allowed: plain entries", entry));
  }
  if (stat.comp_method != ZIP_CM_STORE && stat.comp_method != ZIP_CM_DEFLATE) {
    throw IoError(fmt::format(
        "{}: has compression method {}; allowed: 0 (stored), 8 (deflated)",
        entry, stat.comp_method));
  }
  if (stat.size > max_tensor_bytes) {
    throw IoError(fmt::format("{}: claims {} bytes; at most {} are allowed",
                              entry, stat.size, max_tensor_bytes));
  }
  const uint64_t inflation =
      stat.comp_method == ZIP_CM_STORE ? 1 : kMaxInflation;
  if (stat.comp_size > archive_bytes ||
      stat.size / inflation > stat.comp_size) {
    throw IoError(fmt::format(
        "{}: claims {} bytes from {} {} bytes in an archive of {} bytes, more "
        "than they can hold",
        entry, stat.size, stat.comp_size,
        inflation == 1 ? "stored" : "deflated", archive_bytes));
  }
}

NpzReader::NpzReader(const std::filesystem::path& path,
                     uint64_t max_tensor_bytes)
    : archive_(std::make_unique<Archive>()) {
  archive_->where = path.string();
  archive_->max_tensor_bytes = max_tensor_bytes;
  // also says it when there is no such file, which libzip does not
  archive_->archive_bytes = OpenFile(path)->size_bytes();
  ZipError error;
  archive_->Open(::zip_source_file_create(path.c_str(), 0, -1, error.get()),
                 error);
}

NpzReader::NpzReader(std::span<const std::byte> bytes, const std::string& where,
                     uint64_t max_tensor_bytes)
    : archive_(std::make_unique<Archive>()) {
  archive_->where = where;
  archive_->max_tensor_bytes = max_tensor_bytes;
  archive_->archive_bytes = bytes.size();
  ZipError error;
  archive_->Open(::zip_source_buffer_create(bytes.data(), bytes.size(),
                                            /*freep=*/0, error.get()),
                 error);
}

NpzReader::NpzReader(NpzReader&&) noexcept = default;
NpzReader& NpzReader::operator=(NpzReader&&) noexcept = default;
NpzReader::~NpzReader() = default;

const std::vector<std::string>& NpzReader::names() const {
  return archive_->names;
}

bool NpzReader::Has(std::string_view name) const {
  return archive_->index_of_name.contains(name);
}

HostTensor NpzReader::Read(std::string_view name) const {
  const auto found = archive_->index_of_name.find(name);
  if (found == archive_->index_of_name.end()) {
    throw IoError(fmt::format("{}: no array '{}'; it holds: {}",
                              archive_->where, name,
                              fmt::join(archive_->names, ", ")));
  }
  const std::string entry =
      fmt::format("{}: entry '{}{}'", archive_->where, name, kExtension);
  zip_t* zip = archive_->zip.get();

  zip_stat_t stat;
  if (::zip_stat_index(zip, found->second, 0, &stat) != 0) {
    throw IoError(fmt::format("{}: {}", entry, ::zip_strerror(zip)));
  }
  archive_->CheckEntry(stat, entry);
  const ZipFilePtr file(::zip_fopen_index(zip, found->second, 0));
  if (file == nullptr) {
    throw IoError(fmt::format("{}: {}", entry, ::zip_strerror(zip)));
  }

  // returns how many bytes were left to read, at most out.size()
  const auto read_some = [&](std::span<std::byte> out) {
    const zip_int64_t count = ::zip_fread(file.get(), out.data(), out.size());
    if (count < 0) {
      throw IoError(
          fmt::format("{}: {}", entry, ::zip_file_strerror(file.get())));
    }
    return static_cast<size_t>(count);
  };
  const auto read = [&](std::span<std::byte> out) {
    while (!out.empty()) {
      const size_t count = read_some(out);
      if (count == 0) {
        throw IoError(fmt::format("{}: holds less than the {} bytes it claims",
                                  entry, stat.size));
      }
      out = out.subspan(count);
    }
  };
  HostTensor tensor = ReadNpyStream(stat.size, read, entry);

  // libzip compares the checksum when it is asked to read past the end
  std::byte extra{};
  if (read_some({&extra, 1}) != 0) {
    throw IoError(fmt::format("{}: holds more than the {} bytes it claims",
                              entry, stat.size));
  }
  return tensor;
}

namespace {

void CheckNpzNames(std::span<const NamedTensorView> tensors) {
  std::set<std::string_view> seen;
  for (const NamedTensorView& named : tensors) {
    const std::string_view problem = NameProblem(named.name);
    if (!problem.empty()) {
      throw InvalidArgument(
          fmt::format("WriteNpz: name '{}': {}", named.name, problem));
    }
    if (!seen.insert(named.name).second) {
      throw InvalidArgument(
          fmt::format("WriteNpz: two tensors are named '{}'", named.name));
    }
  }
}

// Adds one .npy file; `prefix` and the tensor are read when the archive closes.
void AddEntry(zip_t* zip, const NamedTensorView& named,
              const std::string& prefix, NpzCompression compression) {
  // libzip only reads them, but its type says otherwise
  const auto fragment = [](const void* data, size_t size) {
    return zip_buffer_fragment_t{
        static_cast<zip_uint8_t*>(const_cast<void*>(data)), size};
  };
  const zip_buffer_fragment_t fragments[] = {
      fragment(prefix.data(), prefix.size()),
      fragment(named.tensor.data(), named.tensor.size_bytes())};
  // an empty tensor has no second fragment
  const zip_uint64_t num_fragments = named.tensor.size_bytes() == 0 ? 1 : 2;
  ZipSourcePtr source(
      ::zip_source_buffer_fragment(zip, fragments, num_fragments, /*freep=*/0));
  REPLICANT_CHECK(source != nullptr, "{}", ::zip_strerror(zip));

  const std::string entry = named.name + std::string(kExtension);
  const zip_int64_t added =
      ::zip_file_add(zip, entry.c_str(), source.get(), ZIP_FL_ENC_UTF_8);
  if (added < 0) {
    throw InvalidArgument(fmt::format(
        "WriteNpz: name '{}': {}; allowed: UTF-8 of at most 65535 bytes",
        named.name, ::zip_strerror(zip)));
  }
  // the archive owns it from now on
  static_cast<void>(source.release());

  const auto index = static_cast<zip_uint64_t>(added);
  const zip_int32_t method =
      compression == NpzCompression::kStored ? ZIP_CM_STORE : ZIP_CM_DEFLATE;
  // 1980-01-01, the first day that zip can say, for files that can be compared
  constexpr zip_uint16_t kFirstDay = (0 << 9) | (1 << 5) | 1;
  const bool is_set =
      ::zip_set_file_compression(zip, index, method, kDeflateLevel) == 0 &&
      ::zip_file_set_dostime(zip, index, /*dostime=*/0, kFirstDay, 0) == 0;
  REPLICANT_CHECK(is_set, "{}", ::zip_strerror(zip));
}

// Builds the archive in memory; not empty.
ZipSourcePtr BuildArchive(std::span<const NamedTensorView> tensors,
                          NpzCompression compression) {
  // fragments point at these until the archive closes
  std::vector<std::string> prefixes;
  prefixes.reserve(tensors.size());
  for (const NamedTensorView& named : tensors) {
    prefixes.push_back(NpyPrefix(named.tensor));
  }

  ZipError error;
  ZipSourcePtr sink(
      ::zip_source_buffer_create(nullptr, 0, /*freep=*/0, error.get()));
  REPLICANT_CHECK(sink != nullptr, "{}", error.text());
  ZipPtr zip(::zip_open_from_source(sink.get(), ZIP_TRUNCATE, error.get()));
  REPLICANT_CHECK(zip != nullptr, "{}", error.text());
  // one reference for the archive, one to read it from afterwards
  ::zip_source_keep(sink.get());

  for (size_t i = 0; i < tensors.size(); ++i) {
    AddEntry(zip.get(), tensors[i], prefixes[i], compression);
  }
  if (::zip_close(zip.get()) != 0) {
    throw IoError(fmt::format("WriteNpz: {}", ::zip_strerror(zip.get())));
  }
  static_cast<void>(zip.release());
  return sink;
}

// Hands the archive to `write` piece by piece.
template <typename Write>
void EncodeNpz(std::span<const NamedTensorView> tensors,
               NpzCompression compression, Write&& write) {
  CheckNpzNames(tensors);
  if (tensors.empty()) {
    // libzip deletes an archive without entries: this is the end record alone,
    // with all its counts zero (APPNOTE.TXT, 4.3.16)
    write("PK\x05\x06" + std::string(18, '\0'));
    return;
  }

  const ZipSourcePtr sink = BuildArchive(tensors, compression);
  REPLICANT_CHECK(::zip_source_open(sink.get()) == 0, "{}",
                  ::zip_error_strerror(::zip_source_error(sink.get())));
  std::string piece(size_t{1} << 20, '\0');
  while (true) {
    const zip_int64_t count =
        ::zip_source_read(sink.get(), piece.data(), piece.size());
    REPLICANT_CHECK(count >= 0, "{}",
                    ::zip_error_strerror(::zip_source_error(sink.get())));
    if (count == 0) break;
    write(std::string_view(piece.data(), static_cast<size_t>(count)));
  }
  ::zip_source_close(sink.get());
}

}  // namespace

std::string EncodeNpz(std::span<const NamedTensorView> tensors,
                      NpzCompression compression) {
  std::string text;
  EncodeNpz(tensors, compression,
            [&](std::string_view piece) { text += piece; });
  return text;
}

void WriteNpz(const std::filesystem::path& path,
              std::span<const NamedTensorView> tensors,
              NpzCompression compression) {
  AtomicFile file(path);
  EncodeNpz(tensors, compression,
            [&](std::string_view piece) { file.Write(piece); });
  file.Commit();
}

}  // namespace replicant
