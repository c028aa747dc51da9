#include "base/images/tar.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace replicant::data {
namespace {

constexpr uint64_t kBlock = 512;
// Longest extended header: names, pax records and maps of sparse files.
constexpr uint64_t kMaxExtendedBytes = 1 << 24;
// Bytes that are searched at once for the end of a run of zeros.
constexpr uint64_t kZerosBytes = 1 << 16;

constexpr const char* kSparse = "sparse files with holes";
constexpr const char* kSpecial = "devices, pipes and other special files";
constexpr const char* kVolume = "parts of files in several volumes";
constexpr const char* kBehind = "bytes behind the end that are no archive";

// A part of a sparse file that is stored.
struct Segment {
  uint64_t begin = 0;
  uint64_t size = 0;
};

// Whether the stored parts are the whole file, in order.
bool IsWhole(std::span<const Segment> segments, uint64_t size_bytes) {
  uint64_t end = 0;
  for (const Segment& segment : segments) {
    if (segment.size == 0) continue;
    if (segment.begin != end || segment.size > size_bytes - end) return false;
    end += segment.size;
  }
  return end == size_bytes;
}

// The whole number that all of `text` is.
std::optional<uint64_t> ParseNumber(std::string_view text, int base = 10) {
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, base);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

// A header block: the fields of POSIX's ustar.
class Header {
 public:
  std::span<std::byte> block() { return block_; }

  bool IsZero() const {
    return std::ranges::all_of(block_,
                               [](std::byte b) { return b == std::byte{0}; });
  }
  // The sum of all bytes, with blanks in the place of the sum.
  bool HasRightSum() const {
    uint64_t sum = 0;
    for (size_t i = 0; i < block_.size(); ++i) {
      sum += i >= 148 && i < 156 ? uint64_t{' '}
                                 : std::to_integer<uint64_t>(block_[i]);
    }
    return Number(148, 8) == sum;
  }
  std::string Name() const {
    const std::string_view prefix = Text(345, 155);
    // GNU tar has other fields there
    const bool is_posix = Text(257, 6) == "ustar" && !prefix.empty();
    return is_posix ? fmt::format("{}/{}", prefix, Text(0, 100))
                    : std::string(Text(0, 100));
  }
  std::optional<uint64_t> Size() const { return Number(124, 12); }
  std::string Link() const { return std::string(Text(157, 100)); }
  char type() const { return static_cast<char>(block_[156]); }
  bool IsGood() const { return HasRightSum() && Size(); }

  // Parts of GNU tar's sparse file: four in its header, 21 in each block that
  // extends it. Returns whether another block follows.
  bool AddSegments(bool is_first, std::vector<Segment>* segments) const {
    const size_t begin = is_first ? 386 : 0;
    const size_t count = is_first ? 4 : 21;
    for (size_t i = 0; i < count; ++i) {
      const auto offset = Number(begin + i * 24, 12);
      const auto size = Number(begin + i * 24 + 12, 12);
      if (!offset || !size) break;
      segments->push_back({*offset, *size});
    }
    return block_[begin + count * 24] != std::byte{0};
  }
  std::optional<uint64_t> RealSize() const { return Number(483, 12); }

 private:
  // Text up to a zero.
  std::string_view Text(size_t offset, size_t size) const {
    const std::string_view text(
        reinterpret_cast<const char*>(block_.data()) + offset, size);
    return text.substr(0, text.find('\0'));
  }
  // An octal number, or one of base 256 where the first bit is set; 0 where
  // there is nothing.
  std::optional<uint64_t> Number(size_t offset, size_t size) const {
    if (std::to_integer<int>(block_[offset]) == 0x80) {
      uint64_t value = 0;
      for (size_t i = 1; i < size; ++i) {
        if (value >> 55U != 0) return std::nullopt;
        value = value << 8U | std::to_integer<uint64_t>(block_[offset + i]);
      }
      return value;
    }
    std::string_view text = Text(offset, size);
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    text = text.substr(0, text.find(' '));
    return text.empty() ? 0 : ParseNumber(text, 8);
  }

  std::array<std::byte, kBlock> block_;
};

// What separate headers say about the member behind them.
struct Extended {
  std::string name;
  std::string link;
  std::optional<uint64_t> size;  // in place of the header's
  // a sparse file of pax
  bool is_sparse = false;
  bool has_map_in_data = false;  // version 1.0
  std::string sparse_name;
  std::optional<uint64_t> real_size;
  std::vector<Segment> segments;
};

// The map of pax's sparse files 0.1: "BEGIN,SIZE,BEGIN,SIZE,...".
std::vector<Segment> ParseMap(std::string_view text) {
  std::vector<uint64_t> numbers;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    // a wrong number makes a wrong size, and so a file with holes
    numbers.push_back(ParseNumber(text.substr(0, comma)).value_or(0));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  std::vector<Segment> segments;
  for (size_t i = 0; i + 1 < numbers.size(); i += 2) {
    segments.push_back({numbers[i], numbers[i + 1]});
  }
  return segments;
}

// Source: the appendix "Sparse Formats" of GNU tar's manual.
void ReadSparseRecord(std::string_view key, std::string_view value,
                      Extended* extended) {
  extended->is_sparse = true;
  if (key == "major") {
    extended->has_map_in_data = value != "0";
  } else if (key == "name") {
    extended->sparse_name = value;
  } else if (key == "size" || key == "realsize") {
    extended->real_size = ParseNumber(value);
  } else if (key == "map") {
    extended->segments = ParseMap(value);
  } else if (key == "offset") {
    extended->segments.push_back({.begin = ParseNumber(value).value_or(0)});
  } else if (key == "numbytes" && !extended->segments.empty()) {
    extended->segments.back().size = ParseNumber(value).value_or(0);
  }
}

// The records of pax: "LENGTH KEY=VALUE\n".
void ReadPax(std::string_view records, Extended* extended) {
  constexpr std::string_view kSparsePrefix = "GNU.sparse.";
  while (!records.empty()) {
    size_t length = 0;
    const auto [stop, error] = std::from_chars(
        records.data(), records.data() + records.size(), length);
    if (error != std::errc() || length < 4 || length > records.size()) break;
    std::string_view record = records.substr(0, length - 1);
    records.remove_prefix(length);
    record.remove_prefix(std::min(record.find(' '), record.size() - 1) + 1);
    const std::string_view key = record.substr(0, record.find('='));
    const std::string_view value =
        record.substr(std::min(key.size() + 1, record.size()));
    if (key == "path") {
      extended->name = value;
    } else if (key == "linkpath") {
      extended->link = value;
    } else if (key == "size") {
      extended->size = ParseNumber(value);
    } else if (key.starts_with(kSparsePrefix)) {
      ReadSparseRecord(key.substr(kSparsePrefix.size()), value, extended);
    }
  }
}

// Goes through one tar file.
class Walker {
 public:
  Walker(uint64_t size_bytes, const std::string& where, const ReadAt& read,
         const std::function<void(const TarMember&)>& visit)
      : size_bytes_(size_bytes), where_(where), read_(read), visit_(visit) {}

  void Walk() {
    while (FindHeader()) {
      switch (header_.type()) {
        case 'L':
          extended_.name = ReadText().c_str();
          break;
        case 'K':
          extended_.link = ReadText().c_str();
          break;
        case 'x':
        case 'X':  // of Solaris
          ReadPax(ReadText(), &extended_);
          break;
        default:
          VisitMember();
          extended_ = {};
      }
    }
  }

 private:
  // Moves on to the next header; returns false at the end.
  bool FindHeader() {
    bool is_behind_end = false;
    while (offset_ + kBlock <= size_bytes_) {
      read_(offset_, header_.block());
      if (header_.IsZero()) {
        // the end, unless another archive follows
        is_behind_end = true;
        SkipZeros();
        continue;
      }
      if (header_.IsGood()) return true;
      if (!is_behind_end) {
        throw IoError(
            fmt::format("{}: no tar header at byte {}", where_, offset_));
      }
      visit_({.name = fmt::format("byte {}", offset_),
              .offset = offset_,
              .problem = kBehind});
      return false;
    }
    if (!is_behind_end && offset_ < size_bytes_) {
      throw IoError(fmt::format("{}: cut off: ends in a header at byte {}",
                                where_, offset_));
    }
    return false;
  }

  // Moves on to the next block that is not zero.
  void SkipZeros() {
    offset_ += kBlock;
    std::vector<std::byte> bytes;
    while (offset_ + kBlock <= size_bytes_) {
      const uint64_t whole = (size_bytes_ - offset_) / kBlock * kBlock;
      bytes.resize(std::min(whole, kZerosBytes));
      read_(offset_, bytes);
      const auto found = std::ranges::find_if(
          bytes, [](std::byte b) { return b != std::byte{0}; });
      offset_ += static_cast<uint64_t>(found - bytes.begin()) / kBlock * kBlock;
      if (found != bytes.end()) return;
    }
  }

  // The bytes of an extended header; moves behind them.
  std::string ReadText() {
    const uint64_t size = *header_.Size();
    if (size > kMaxExtendedBytes) {
      throw IoError(
          fmt::format("{}: an extended header of {} bytes at byte {}; at most "
                      "{}",
                      where_, size, offset_, kMaxExtendedBytes));
    }
    const uint64_t begin = BeginData(size);
    std::string text(size, '\0');
    read_(begin, std::as_writable_bytes(std::span(text)));
    return text;
  }

  // Returns where the data behind the header begins; moves behind it.
  uint64_t BeginData(uint64_t size) {
    const uint64_t begin = offset_ + kBlock;
    if (size > size_bytes_ - begin) {
      throw IoError(
          fmt::format("{}: cut off: the member at byte {} has {} bytes, and "
                      "the file ends {} after its header",
                      where_, offset_, size, size_bytes_ - begin));
    }
    // whole blocks
    offset_ = begin + (size + kBlock - 1) / kBlock * kBlock;
    return begin;
  }

  void VisitMember() {
    const char type = header_.type();
    TarMember member{
        .name = extended_.name.empty() ? header_.Name() : extended_.name,
        .size_bytes = extended_.size.value_or(*header_.Size())};
    // GNU tar's lists of folders have data
    const bool is_folder =
        type == '5' || (type != 'D' && member.name.ends_with('/'));
    const bool is_empty = is_folder || (type >= '1' && type <= '6');
    if (is_empty && (type != '1' || !HasDataBehind())) {
      // some writers store the size of a link's file
      member.size_bytes = 0;
    }
    if (type == 'S') {
      VisitOldSparse(&member);
      return;
    }
    member.offset = BeginData(member.size_bytes);
    if (type == '1' || type == '2') {
      if (member.size_bytes == 0) member.link = LinkOf(member.name);
    } else if (type == '3' || type == '4' || type == '6') {
      member.problem = kSpecial;
    } else if (type == 'M') {
      member.problem = kVolume;
    } else if (type != '0' && type != '\0' && type != '7') {
      // metadata: volume labels, global headers, lists of folders
      return;
    }
    if (is_folder) return;
    if (extended_.is_sparse) ReadSparse(&member);
    visit_(member);
  }

  // Whether a hard link has bytes (pax allows it): what follows is no header.
  bool HasDataBehind() {
    const uint64_t next = offset_ + kBlock;
    if (next + kBlock > size_bytes_) return false;
    Header header;
    read_(next, header.block());
    return !header.IsZero() && !header.IsGood();
  }

  std::string LinkOf(const std::string& name) const {
    const std::string target =
        extended_.link.empty() ? header_.Link() : extended_.link;
    if (header_.type() == '1' || target.starts_with('/')) {
      return NormalTarName(target);
    }
    // a symbolic link is relative to its folder
    return NormalTarName(name.substr(0, name.rfind('/') + 1) + target);
  }

  // A sparse file of pax.
  void ReadSparse(TarMember* member) {
    if (!extended_.sparse_name.empty()) member->name = extended_.sparse_name;
    const uint64_t real_size = extended_.real_size.value_or(member->size_bytes);
    if (extended_.has_map_in_data) ReadMapInData(member);
    FinishSparse(extended_.segments, real_size, member);
  }

  // Moves the member's begin behind the map, lines of one number each: how many
  // parts there are, then where each begins and its size.
  void ReadMapInData(TarMember* member) {
    std::string text;
    uint64_t begin = 0;  // of the next line
    const auto next = [&]() -> std::optional<uint64_t> {
      size_t end = text.find('\n', begin);
      while (end == std::string::npos) {
        if (member->size_bytes < kBlock || text.size() > kMaxExtendedBytes) {
          return std::nullopt;
        }
        std::string block(kBlock, '\0');
        read_(member->offset, std::as_writable_bytes(std::span(block)));
        member->offset += kBlock;
        member->size_bytes -= kBlock;
        text += block;
        end = text.find('\n', begin);
      }
      const std::string_view line =
          std::string_view(text).substr(begin, end - begin);
      begin = end + 1;
      return ParseNumber(line);
    };
    const uint64_t count = next().value_or(0);
    for (uint64_t i = 0; i < count; ++i) {
      const auto offset = next();
      const auto size = next();
      if (!offset || !size) return;
      extended_.segments.push_back({*offset, *size});
    }
  }

  // A sparse file of GNU tar.
  void VisitOldSparse(TarMember* member) {
    const uint64_t real_size = header_.RealSize().value_or(0);
    std::vector<Segment> segments;
    bool has_more = header_.AddSegments(/*is_first=*/true, &segments);
    while (has_more && offset_ + 2 * kBlock <= size_bytes_) {
      offset_ += kBlock;
      read_(offset_, header_.block());
      has_more = header_.AddSegments(/*is_first=*/false, &segments);
    }
    member->offset = BeginData(member->size_bytes);
    FinishSparse(segments, real_size, member);
    visit_(*member);
  }

  static void FinishSparse(std::span<const Segment> segments,
                           uint64_t real_size, TarMember* member) {
    // stored in full, as files are whose disk compresses them
    if (real_size > member->size_bytes || !IsWhole(segments, real_size)) {
      member->problem = kSparse;
    }
    member->size_bytes = std::min(real_size, member->size_bytes);
  }

  const uint64_t size_bytes_;
  const std::string& where_;
  const ReadAt& read_;
  const std::function<void(const TarMember&)>& visit_;
  Header header_;
  uint64_t offset_ = 0;  // of the header
  Extended extended_;
};

}  // namespace

std::string NormalTarName(std::string_view name) {
  return std::filesystem::path(name).lexically_normal().string();
}

void ForEachTarMember(uint64_t size_bytes, const std::string& where,
                      const ReadAt& read,
                      const std::function<void(const TarMember&)>& visit) {
  Walker(size_bytes, where, read, visit).Walk();
}

}  // namespace replicant::data
