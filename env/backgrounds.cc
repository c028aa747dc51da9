#include "env/backgrounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/fs.h"
#include "base/images/decode.h"
#include "base/images/folder_entries.h"
#include "base/images/image_names.h"
#include "base/images/resize.h"

namespace replicant::env {
namespace {

namespace fs = std::filesystem;

constexpr const char* kKey = "task.distractions.background";

using Entries = std::vector<fs::directory_entry>;

// Throws ConfigError if the folder cannot be read.
Entries EntriesOf(const fs::path& folder) {
  try {
    return data::FolderEntries(folder);
  } catch (const IoError& error) {
    throw ConfigError(fmt::format("{}.folder: {}", kKey, error.what()));
  }
}

std::vector<fs::path> ImagesOf(const Entries& entries) {
  std::vector<fs::path> images;
  for (const fs::directory_entry& entry : entries) {
    const std::string name = entry.path().filename().string();
    std::error_code error;
    if (entry.is_regular_file(error) && !data::IsLeftByTools(name) &&
        data::IsImageExtension(data::LowerExtension(name, name.rfind('.')))) {
      images.push_back(entry.path());
    }
  }
  return images;
}

std::vector<std::vector<fs::path>> ListVideos(const std::string& folder) {
  if (folder.empty()) {
    throw ConfigError(fmt::format(
        "{0}.folder: empty; want a folder of images, or of folders of images, "
        "or {0}.enabled: false",
        kKey));
  }
  std::vector<std::vector<fs::path>> videos;
  const Entries entries = EntriesOf(folder);
  for (const fs::directory_entry& entry : entries) {
    std::error_code error;
    if (!entry.is_directory(error) ||
        data::IsLeftByTools(entry.path().filename().string())) {
      continue;
    }
    if (auto images = ImagesOf(EntriesOf(entry.path())); !images.empty()) {
      videos.push_back(std::move(images));
    }
  }
  auto images = ImagesOf(entries);
  if (videos.empty() && !images.empty()) videos.push_back(std::move(images));
  if (videos.empty()) {
    throw ConfigError(
        fmt::format("{}.folder: {}: neither it nor a folder in it has {}", kKey,
                    folder, data::kImageFiles));
  }
  return videos;
}

// The largest box of the picture's ratio in the middle of an image.
data::Box MiddleOf(const data::ImageSize& size, int height, int width) {
  const auto all_height = static_cast<double>(size.height);
  const auto all_width = static_cast<double>(size.width);
  // rounded, neither side may become longer than the image's
  const double box_height = std::min(all_height, all_width * height / width);
  const double box_width = std::min(all_width, all_height * width / height);
  const double left = (all_width - box_width) / 2;
  const double top = (all_height - box_height) / 2;
  return {.left = left,
          .top = top,
          .right = left + box_width,
          .bottom = top + box_height};
}

std::vector<uint8_t> Decode(const fs::path& path, int height, int width) {
  const std::string bytes = ReadFile(path);
  data::Image image;
  const data::Box box = data::DecodeImage(
      std::as_bytes(std::span(bytes)), path.string(),
      [&](const data::ImageSize& size) {
        return MiddleOf(size, height, width);
      },
      std::max(height, width), &image);
  std::vector<uint8_t> rgb(static_cast<size_t>(height) *
                           static_cast<size_t>(width) * 3);
  data::Resizer().Resize(image, box, {.height = height, .width = width}, rgb);
  return rgb;
}

}  // namespace

BackgroundConfig BackgroundConfig::Read(config::Reader& reader) {
  BackgroundConfig c;
  reader.Field("enabled", &c.is_enabled,
               "whether images stand where the sky would be seen");
  reader.Field("folder", &c.folder,
               "folder of images, one video, or of folders of images, one for "
               "each video; relative to the file that holds this key");
  reader.Field("videos", &c.num_videos, {0, 1'000'000},
               "number of videos, the first by name; each episode draws one; "
               "0: all");
  reader.Field("dynamic", &c.is_dynamic,
               "whether a video plays, forwards and backwards; false: one of "
               "its images for an episode");
  return c;
}

Backgrounds::Backgrounds(const BackgroundConfig& config, int height, int width)
    : videos_(ListVideos(config.folder)) {
  if (config.num_videos > num_videos()) {
    throw ConfigError(fmt::format(
        "{}.videos: {}, but {} has {} with images; allowed: 0 (all) to {}",
        kKey, config.num_videos, config.folder, num_videos(), num_videos()));
  }
  if (config.num_videos > 0) {
    videos_.resize(static_cast<size_t>(config.num_videos));
  }
  for (int64_t video = 0; video < num_videos(); ++video) {
    Get(video, 0, height, width);
  }
}

Backgrounds::Picture Backgrounds::Get(int64_t video, int64_t image, int height,
                                      int width) const {
  const std::tuple key(video, image, height, width);
  {
    const MutexLock lock(mutex_);
    if (const auto found = pictures_.find(key); found != pictures_.end()) {
      return found->second;
    }
  }
  // not under the lock: another thread may decode the same image meanwhile
  const auto picture = std::make_shared<const std::vector<uint8_t>>(Decode(
      videos_.at(static_cast<size_t>(video)).at(static_cast<size_t>(image)),
      height, width));
  const MutexLock lock(mutex_);
  return pictures_.emplace(key, picture).first->second;
}

}  // namespace replicant::env
