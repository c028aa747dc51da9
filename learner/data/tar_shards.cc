#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/images/folder_entries.h"
#include "base/images/image_names.h"
#include "base/images/positional_file.h"
#include "base/images/tar.h"
#include "learner/data/encoded_images.h"

namespace replicant::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLinks = "links to no file of the archive";
constexpr const char* kCompressed = "compressed tar files";
constexpr const char* kNoTar = "files that are no tar files";
constexpr const char* kFolders = "folders in a folder of tar files";
constexpr const char* kNoImage = ".cls files without an image";
constexpr const char* kEmpty = "tar files without an image";

// More links one behind the other are a circle.
constexpr int kMaxLinks = 40;

// The files of a shard by NormalTarName().
using TarIndex = std::map<std::string, TarMember>;

// Collects the examples of one shard. Without an index, links are not read.
class ShardLister {
 public:
  ShardLister(const fs::path& path, const PositionalFile& file,
              const TarIndex* index)
      : path_(path), file_(file), index_(index) {}

  void Visit(const TarMember& member);
  // Ends the last example.
  void Finish();

  bool has_links() const { return has_links_; }
  const std::vector<EncodedImage>& images() const { return images_; }
  const LeftOutCounts& left_out() const { return left_out_; }

 private:
  // The file to which a link leads; nothing if there is none.
  std::optional<TarMember> Resolve(const TarMember& link) const;
  int32_t ReadLabel(const TarMember& member) const;
  void LeaveOut(const std::string& reason, const std::string& name,
                bool is_loss) {
    left_out_.Add(reason,
                  fmt::format("{}: {}", path_.filename().string(), name),
                  is_loss);
  }

  const fs::path& path_;
  const PositionalFile& file_;
  const TarIndex* const index_;
  bool has_links_ = false;
  std::vector<EncodedImage> images_;
  LeftOutCounts left_out_;

  // the example that is not finished
  std::string key_;
  std::optional<TarMember> image_;
  std::optional<int32_t> label_;
};

void ShardLister::Visit(const TarMember& member) {
  has_links_ = has_links_ || !member.link.empty();
  // a shard with links is listed again
  if (has_links_ && index_ == nullptr) return;
  // neither of the next ones ends an example
  if (!member.problem.empty()) {
    LeaveOut(member.problem, member.name, /*is_loss=*/true);
    return;
  }
  if (IsLeftByToolsInPath(member.name)) {
    LeaveOut(kHiddenFiles, member.name, /*is_loss=*/false);
    return;
  }
  // a key ends at the first dot of the file's name, and all after it is the
  // extension: KEY.seg.png is not an image
  const size_t slash = member.name.rfind('/');
  const size_t dot =
      member.name.find('.', slash == std::string::npos ? 0 : slash + 1);
  const std::string extension = LowerExtension(member.name, dot);
  if (extension.empty()) {
    LeaveOut("files without an extension", member.name, /*is_loss=*/false);
    return;
  }
  std::optional<TarMember> file = member;
  if (!member.link.empty()) file = Resolve(member);
  if (!file) {
    LeaveOut(kLinks, member.name, /*is_loss=*/true);
    return;
  }

  const std::string key = member.name.substr(0, dot);
  if (key != key_) {
    Finish();
    key_ = key;
  }
  if (extension == "cls") {
    label_ = ReadLabel(*file);
  } else if (!IsImageExtension(extension)) {
    LeaveOut(fmt::format(".{} files", extension), member.name,
             IsForeignImageExtension(extension));
  } else if (image_) {
    throw IoError(fmt::format("{}: two images of one example: {} and {}",
                              path_.string(), image_->name, member.name));
  } else {
    image_ = *file;
  }
}

std::optional<TarMember> ShardLister::Resolve(const TarMember& link) const {
  std::string target = link.link;
  for (int i = 0; i < kMaxLinks; ++i) {
    const auto found = index_->find(target);
    if (found == index_->end()) return std::nullopt;
    if (found->second.link.empty()) {
      TarMember file = found->second;
      file.name = link.name;
      return file;
    }
    target = found->second.link;
  }
  return std::nullopt;
}

int32_t ShardLister::ReadLabel(const TarMember& member) const {
  std::string text(std::min<uint64_t>(member.size_bytes, 32), '\0');
  file_.Read(member.offset, std::as_writable_bytes(std::span(text)));
  while (!text.empty() &&
         std::isspace(static_cast<unsigned char>(text.back())) != 0) {
    text.pop_back();
  }
  int32_t label = -1;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, label);
  if (error != std::errc() || stop != end || label < 0 || label >= kMaxLabels) {
    throw IoError(
        fmt::format("{}: {}: want the number of a class, 0 to {}, got '{}'",
                    path_.string(), member.name, kMaxLabels - 1, text));
  }
  return label;
}

void ShardLister::Finish() {
  if (image_ && !label_) {
    throw IoError(fmt::format("{}: {}: no class next to it: want {}.cls",
                              path_.string(), image_->name, key_));
  }
  if (image_) {
    images_.push_back({.label = *label_,
                       .offset = image_->offset,
                       .size_bytes = image_->size_bytes});
  } else if (label_) {
    LeaveOut(kNoImage, key_ + ".cls", /*is_loss=*/true);
  }
  image_.reset();
  label_.reset();
}

// Throws IoError for a file of a compressor.
void CheckNotCompressed(const PositionalFile& file, const fs::path& path) {
  constexpr std::array<std::string_view, 4> kMagics = {
      "\x1f\x8b", "BZh", "\xfd\x37zXZ", "\x28\xb5\x2f\xfd"};
  std::string text(std::min<uint64_t>(file.Size(), 8), '\0');
  file.Read(0, std::as_writable_bytes(std::span(text)));
  if (std::ranges::any_of(kMagics, [&](std::string_view magic) {
        return text.starts_with(magic);
      })) {
    throw IoError(fmt::format(
        "{}: compressed; want a tar file that is not, since its members are "
        "read at their places; hint: gunzip, unzstd or unxz",
        path.string()));
  }
}

// Adds the examples of one shard.
void ListShard(const fs::path& path, EncodedImages* images) {
  const PositionalFile file(path);
  CheckNotCompressed(file, path);
  const auto for_each = [&](const auto& visit) {
    ForEachTarMember(
        file.Size(), path.string(),
        [&](uint64_t offset, std::span<std::byte> out) {
          file.Read(offset, out);
        },
        visit);
  };
  TarIndex index;
  std::optional<ShardLister> lister(std::in_place, path, file, nullptr);
  const auto visit = [&](const TarMember& member) { lister->Visit(member); };
  for_each(visit);
  if (lister->has_links()) {
    // a link may lead to a file behind it
    for_each([&](const TarMember& member) {
      if (member.problem.empty()) {
        index.insert_or_assign(NormalTarName(member.name), member);
      }
    });
    lister.emplace(path, file, &index);
    for_each(visit);
  }
  lister->Finish();

  const auto number = static_cast<int32_t>(images->files.size());
  images->files.push_back(path);
  for (EncodedImage image : lister->images()) {
    image.file = number;
    images->images.push_back(image);
    images->num_classes =
        std::max(images->num_classes, int64_t{image.label} + 1);
  }
  images->left_out.Add(lister->left_out());
  if (lister->images().empty()) {
    images->left_out.Add(kEmpty, path.filename(), /*is_loss=*/true);
  }
}

bool IsCompressedTar(const std::string& name) {
  const std::string extension = LowerExtension(name, name.rfind('.'));
  constexpr std::array<std::string_view, 5> kShort = {"tgz", "tbz2", "txz",
                                                      "tzst", "tlz4"};
  const std::string all = LowerExtension(name, 0);
  return std::ranges::find(kShort, extension) != kShort.end() ||
         all.find(".tar.") != std::string::npos;
}

// The tar files of a folder, sorted.
std::vector<fs::path> ShardsIn(const fs::path& folder,
                               LeftOutCounts* left_out) {
  std::vector<fs::path> shards;
  for (const fs::directory_entry& entry : FolderEntries(folder)) {
    const std::string name = entry.path().filename().string();
    const std::string extension = LowerExtension(name, name.rfind('.'));
    std::error_code error;
    if (IsLeftByTools(name)) {
      left_out->Add(kHiddenFiles, name, /*is_loss=*/false);
    } else if (entry.is_directory(error)) {
      left_out->Add(kFolders, name, /*is_loss=*/true);
    } else if (extension == "tar") {
      shards.push_back(entry.path());
    } else if (IsCompressedTar(name)) {
      left_out->Add(kCompressed, name, /*is_loss=*/true);
    } else {
      left_out->Add(kNoTar, name, /*is_loss=*/false);
    }
  }
  return shards;
}

}  // namespace

EncodedImages ListTarShards(const fs::path& path) {
  EncodedImages result;
  const std::vector<fs::path> shards = fs::is_directory(path)
                                           ? ShardsIn(path, &result.left_out)
                                           : std::vector<fs::path>{path};
  for (const fs::path& shard : shards) ListShard(shard, &result);
  if (result.images.empty()) {
    std::string text = fmt::format(
        "{}: no images; want tar files with members KEY.jpg and KEY.cls",
        path.string());
    if (!result.left_out.all().empty()) {
      text += "; left out: " + DescribeLeftOut(result.left_out.all());
    }
    throw IoError(text);
  }
  return result;
}

}  // namespace replicant::data
