#include "learner/data/encoded_images.h"

#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <optional>
#include <utility>

#include "base/images/decode.h"
#include "base/images/positional_file.h"
#include "base/images/resize.h"

namespace replicant::data {
namespace {

namespace fs = std::filesystem;

// Tar files that a reader keeps open. Every thread has a reader, and the limit
// of a process is often 1024.
constexpr size_t kMaxOpenFiles = 16;

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
  std::vector<int64_t> ClassSizes() const override {
    std::vector<int64_t> sizes(static_cast<size_t>(images_.num_classes));
    for (const EncodedImage& image : images_.images) {
      ++sizes[static_cast<size_t>(image.label)];
    }
    return sizes;
  }
  std::vector<LeftOut> left_out() const override {
    return images_.left_out.all();
  }
  std::string NameOf(int64_t index) const override {
    const EncodedImage& image = images_.images[static_cast<size_t>(index)];
    const std::string file =
        images_.files[static_cast<size_t>(image.file)].string();
    return image.offset == 0
               ? file
               : fmt::format("{}: image at byte {}", file, image.offset);
  }
  std::unique_ptr<ImageReader> MakeReader() const override;

  const EncodedImages& images() const { return images_; }

 private:
  const EncodedImages images_;
};

class EncodedReader : public ImageReader {
 public:
  explicit EncodedReader(const EncodedSource& source)
      : source_(source), images_(source.images()) {}

  int32_t Read(int64_t index, View view, int64_t side,
               std::span<uint8_t> rgb) override {
    const EncodedImage& example = images_.images[static_cast<size_t>(index)];
    const fs::path& path = images_.files[static_cast<size_t>(example.file)];
    // no member of a tar file is at its start
    const bool is_member = example.offset > 0;
    std::optional<PositionalFile> whole;
    const PositionalFile& file =
        is_member ? Open(example.file, path) : whole.emplace(path);
    const uint64_t size = is_member ? example.size_bytes : file.Size();
    const std::string where = source_.NameOf(index);
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
  const PositionalFile& Open(int32_t number, const fs::path& path) {
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

  const EncodedSource& source_;
  const EncodedImages& images_;
  std::list<std::pair<int32_t, PositionalFile>>
      files_;  // the last one used first
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

}  // namespace

std::unique_ptr<ImageSource> MakeEncodedSource(EncodedImages images) {
  return std::make_unique<EncodedSource>(std::move(images));
}

}  // namespace replicant::data
