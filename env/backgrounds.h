#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "base/config/reader.h"
#include "base/mutex.h"

namespace replicant::env {

// Section `task.distractions.background`: images of a folder in the place of
// the sky.
//
// The background distraction of the Distracting Control Suite
// (arXiv:2101.02722, section 3.1), whose folder is DAVIS 2017's.
struct BackgroundConfig {
  bool is_enabled = false;
  // Has one folder of images for each video, or images: one video.
  std::string folder;
  int64_t num_videos = 0;  // the first ones by name; 0: all
  // Whether a video plays, forwards and backwards; otherwise an episode has one
  // of its images.
  bool is_dynamic = true;

  static BackgroundConfig Read(config::Reader& reader);
};

// The videos of a folder: image files in the order of their names
// (base/images/decode.h has the formats). An image is decoded when it is
// first asked for and kept in the size that was asked for, height * width * 3
// bytes.
//
// Differs from the suite, which puts an image on each of the six sides of the
// sky: here the middle of the image fills the picture, behind the scene.
//
// Thread-safety: any thread may call any method.
class Backgrounds {
 public:
  // Lists the folder, and decodes the first image of each video for pictures of
  // this size. Throws ConfigError, with the key, for a folder that cannot be
  // read or has no image, and for fewer videos than `num_videos`; IoError,
  // with the file, for an image that cannot be decoded.
  Backgrounds(const BackgroundConfig& config, int height, int width);

  int64_t num_videos() const { return static_cast<int64_t>(videos_.size()); }
  int64_t num_images(int64_t video) const {
    return static_cast<int64_t>(videos_.at(static_cast<size_t>(video)).size());
  }

  using Picture = std::shared_ptr<const std::vector<uint8_t>>;
  // The middle of the image, as much as has the picture's ratio, as uint8
  // [height, width, 3]. Throws IoError, with the file, for an image that cannot
  // be decoded.
  Picture Get(int64_t video, int64_t image, int height, int width) const;

 private:
  std::vector<std::vector<std::filesystem::path>> videos_;
  mutable Mutex mutex_;
  mutable std::map<std::tuple<int64_t, int64_t, int, int>, Picture> pictures_
      GUARDED_BY(mutex_);
};

}  // namespace replicant::env
