#include "learner/data/encoded_images.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <list>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "learner/data/files/decode.h"
#include "learner/data/files/resize.h"
#include "learner/data/files/tar.h"

namespace replicant::data {
namespace {

namespace fs = std::filesystem;

// Tar files that a reader keeps open. Every thread has a reader, and the limit
// of a process is often 1024.
constexpr size_t kMaxOpenFiles = 16;

// Throws the error of a system call on a file.
[[noreturn]] void ThrowErrno(const char* what, const fs::path& path,
                             int error_number) {
  std::string text = IoError::FromErrno(what, path, error_number).what();
  if (error_number == ENOENT) throw DamagedImage(text);
  if (error_number == EMFILE) {
    text += "; hint: raise the limit of the process, ulimit -n";
  }
  throw IoError(text);
}

// An open file. Throws DamagedImage if it is missing or too short.
class File {
 public:
  explicit File(const fs::path& path)
      : path_(path), fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ < 0) ThrowErrno("cannot open", path, errno);
  }
  ~File() { close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  uint64_t Size() const {
    struct stat status = {};
    if (fstat(fd_, &status) != 0) ThrowErrno("cannot read", path_, errno);
    return static_cast<uint64_t>(status.st_size);
  }
  void Read(uint64_t offset, std::span<std::byte> out) const {
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

 private:
  const fs::path path_;
  const int fd_;
};

// The part of `name` after the dot at `dot`, if there is one, in lower case.
std::string LowerExtension(std::string_view name, size_t dot) {
  std::string extension(dot == std::string_view::npos ? ""
                                                      : name.substr(dot + 1));
  std::ranges::transform(extension, extension.begin(),
                         [](unsigned char c) { return std::tolower(c); });
  return extension;
}

bool IsImageExtension(std::string_view extension) {
  return extension == "jpg" || extension == "jpeg" || extension == "png";
}

// Paths in a folder that `keep` wants, sorted. `keep` takes the iterator.
template <typename Iterator, typename Keep>
std::vector<fs::path> PathsIn(const fs::path& folder, Keep keep) {
  std::vector<fs::path> paths;
  try {
    constexpr auto kOptions = fs::directory_options::follow_directory_symlink;
    for (Iterator entry(folder, kOptions); entry != Iterator(); ++entry) {
      if (keep(entry)) paths.push_back(entry->path());
    }
  } catch (const fs::filesystem_error& error) {
    throw IoError::FromErrno("cannot read folder", folder,
                             error.code().value());
  }
  std::ranges::sort(paths);
  return paths;
}

// Images at any depth below a folder, sorted.
std::vector<fs::path> ImagesBelow(const fs::path& folder) {
  // the folders on the way down, without links
  std::vector<fs::path> above;
  return PathsIn<fs::recursive_directory_iterator>(folder, [&](auto& entry) {
    const fs::path& path = entry->path();
    if (entry->is_directory()) {
      // a link back up would lead down again without end
      above.resize(static_cast<size_t>(entry.depth()));
      above.push_back(fs::canonical(path.parent_path()));
      if (std::ranges::count(above, fs::canonical(path)) > 0) {
        entry.disable_recursion_pending();
      }
    }
    const std::string& name = path.native();
    return entry->is_regular_file() &&
           IsImageExtension(LowerExtension(name, name.rfind('.')));
  });
}

class EncodedSource : public ImageSource {
 public:
  explicit EncodedSource(EncodedImages images) : images_(std::move(images)) {}

  int64_t size() const override {
    return static_cast<int64_t>(images_.images.size());
  }
  const std::vector<std::string>& class_names() const override {
    return images_.class_names;
  }
  int64_t num_classes() const override { return images_.num_classes; }
  std::vector<int64_t> BlockSizes() const override;
  std::unique_ptr<ImageReader> MakeReader() const override;

  const EncodedImages& images() const { return images_; }

 private:
  const EncodedImages images_;
};

class EncodedReader : public ImageReader {
 public:
  explicit EncodedReader(const EncodedSource& source)
      : images_(source.images()) {}

  int32_t Read(int64_t index, View view, int64_t side,
               std::span<uint8_t> rgb) override {
    const EncodedImage& example = images_.images[static_cast<size_t>(index)];
    const fs::path& path = images_.files[static_cast<size_t>(example.file)];
    // no member of a tar file is at its start
    const bool is_member = example.offset > 0;
    std::optional<File> whole;
    const File& file =
        is_member ? Open(example.file, path) : whole.emplace(path);
    const uint64_t size = is_member ? example.size_bytes : file.Size();
    const std::string where =
        is_member
            ? fmt::format("{}: image at byte {}", path.string(), example.offset)
            : path.string();
    if (size > kMaxImageBytes) {
      throw DamagedImage(
          fmt::format("{}: {} bytes; at most {}", where, size, kMaxImageBytes));
    }
    bytes_.resize(size);
    file.Read(example.offset, bytes_);
    const Box box = DecodeImage(
        bytes_, where,
        [&](const ImageSize& all) { return view.ChooseBox(all); }, side,
        &image_);
    resizer_.Resize(image_, box, {.height = side, .width = side}, rgb);
    view.Finish(side, rgb);
    return example.label;
  }

 private:
  // The tar file, among the last ones that were opened.
  const File& Open(int32_t number, const fs::path& path) {
    const auto found = std::ranges::find(
        files_, number, [](const auto& entry) { return entry.first; });
    if (found != files_.end()) {
      files_.splice(files_.begin(), files_, found);
    } else {
      if (files_.size() == kMaxOpenFiles) files_.pop_back();
      files_.emplace_front(std::piecewise_construct,
                           std::forward_as_tuple(number),
                           std::forward_as_tuple(path));
    }
    return files_.front().second;
  }

  const EncodedImages& images_;
  std::list<std::pair<int32_t, File>> files_;  // the last one used first
  std::vector<std::byte> bytes_;
  Image image_;
  Resizer resizer_;
};

std::vector<int64_t> EncodedSource::BlockSizes() const {
  // a folder has a file for each image: no two lie together
  if (images_.files.size() == images_.images.size()) return {size()};
  std::vector<int64_t> sizes(images_.files.size());
  for (const EncodedImage& image : images_.images) {
    ++sizes[static_cast<size_t>(image.file)];
  }
  return sizes;
}

std::unique_ptr<ImageReader> EncodedSource::MakeReader() const {
  return std::make_unique<EncodedReader>(*this);
}

// Collects the examples of one shard.
class ShardLister {
 public:
  ShardLister(const fs::path& path, EncodedImages* images)
      : path_(path), images_(*images), file_(path) {
    images_.files.push_back(path);
  }

  void List() {
    ForEachTarMember(
        file_.Size(), path_.string(),
        [&](uint64_t offset, std::span<std::byte> out) {
          file_.Read(offset, out);
        },
        [&](const TarMember& member) { Visit(member); });
    Finish();
  }

 private:
  void Visit(const TarMember& member) {
    // a key ends at the first dot of the file's name, and all after it is the
    // extension: KEY.seg.png is not an image
    const size_t slash = member.name.rfind('/');
    const size_t dot =
        member.name.find('.', slash == std::string::npos ? 0 : slash + 1);
    const std::string key = member.name.substr(0, dot);
    if (key != key_) {
      Finish();
      key_ = key;
    }
    const std::string extension = LowerExtension(member.name, dot);
    if (extension == "cls") {
      label_ = ReadLabel(member);
    } else if (IsImageExtension(extension)) {
      if (image_) {
        throw IoError(fmt::format("{}: two images of one example: {} and {}",
                                  path_.string(), image_->name, member.name));
      }
      image_ = member;
    }
  }

  int32_t ReadLabel(const TarMember& member) const {
    std::string text(std::min<uint64_t>(member.size_bytes, 32), '\0');
    file_.Read(member.offset, std::as_writable_bytes(std::span(text)));
    while (!text.empty() &&
           std::isspace(static_cast<unsigned char>(text.back())) != 0) {
      text.pop_back();
    }
    int32_t label = -1;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, label);
    if (error != std::errc() || stop != end || label < 0) {
      throw IoError(fmt::format("{}: {}: want the number of a class, got '{}'",
                                path_.string(), member.name, text));
    }
    return label;
  }

  // Ends the example of key_.
  void Finish() {
    if (image_ && !label_) {
      throw IoError(fmt::format("{}: {}: no class next to it: want {}.cls",
                                path_.string(), image_->name, key_));
    }
    if (image_) {
      images_.images.push_back(
          {.file = static_cast<int32_t>(images_.files.size()) - 1,
           .label = *label_,
           .offset = image_->offset,
           .size_bytes = image_->size_bytes});
      images_.num_classes = std::max(images_.num_classes, int64_t{*label_} + 1);
    }
    image_.reset();
    label_.reset();
  }

  const fs::path& path_;
  EncodedImages& images_;
  const File file_;
  std::string key_;
  std::optional<TarMember> image_;
  std::optional<int32_t> label_;
};

}  // namespace

EncodedImages ListImageFolder(const fs::path& folder,
                              const fs::path& training) {
  const auto is_folder = [](const auto& entry) {
    return entry->is_directory();
  };
  EncodedImages result;
  for (const fs::path& path : PathsIn<fs::directory_iterator>(
           training.empty() ? folder : training, is_folder)) {
    result.class_names.push_back(path.filename());
  }
  for (const fs::path& path :
       PathsIn<fs::directory_iterator>(folder, is_folder)) {
    const auto name =
        std::ranges::find(result.class_names, path.filename().native());
    if (name == result.class_names.end()) {
      throw IoError(fmt::format("{}: no class of this name in {}",
                                path.string(), training.string()));
    }
    const auto label = static_cast<int32_t>(name - result.class_names.begin());
    const std::vector<fs::path> files = ImagesBelow(path);
    if (files.empty()) {
      throw IoError(fmt::format(
          "{}: a class without an image; want .jpg, .jpeg or .png files",
          path.string()));
    }
    for (const fs::path& file : files) {
      result.images.push_back(
          {.file = static_cast<int32_t>(result.files.size()), .label = label});
      result.files.push_back(file);
    }
  }
  if (result.images.empty()) {
    throw IoError(fmt::format("{}: no images; want a folder for each class",
                              folder.string()));
  }
  result.num_classes = static_cast<int64_t>(result.class_names.size());
  return result;
}

EncodedImages ListTarShards(const fs::path& path) {
  EncodedImages result;
  std::vector<fs::path> shards = {path};
  if (fs::is_directory(path)) {
    shards = PathsIn<fs::directory_iterator>(path, [](const auto& entry) {
      return entry->path().extension() == ".tar";
    });
  }
  for (const fs::path& shard : shards) ShardLister(shard, &result).List();
  if (result.images.empty()) {
    throw IoError(fmt::format(
        "{}: no images; want tar files with members KEY.jpg and KEY.cls",
        path.string()));
  }
  return result;
}

std::unique_ptr<ImageSource> MakeEncodedSource(EncodedImages images) {
  return std::make_unique<EncodedSource>(std::move(images));
}

}  // namespace replicant::data
