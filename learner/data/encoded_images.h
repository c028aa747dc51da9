#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "learner/data/image_source.h"
#include "learner/data/left_out.h"

// Sources of image files (base/images/decode.h has the formats).
namespace replicant::data {

// Larger files are refused.
constexpr uint64_t kMaxImageBytes = uint64_t{1} << 28;
// No network has more classes: the largest num_classes of a configuration.
constexpr int32_t kMaxLabels = 1 << 20;

// Location of an image's bytes, and its class.
struct EncodedImage {
  int32_t file = 0;  // index of EncodedImages::files
  int32_t label = 0;
  // Offset of a member of a tar file; 0 for a whole file.
  uint64_t offset = 0;
  uint64_t size_bytes = 0;
};

// The images of a source, in the order of their files.
struct EncodedImages {
  std::vector<std::filesystem::path> files;
  std::vector<EncodedImage> images;
  std::vector<std::string> class_names;
  int64_t num_classes = 0;
  // Names are relative to the source.
  LeftOutCounts left_out;
};

// Opens a folder with one folder of images per class, like torchvision's
// ImageFolder: classes are numbered in the order of their names; images are the
// files of kImageFiles (base/images/image_names.h) at any depth, in the
// order of their paths. Links to folders are followed, but not back to a folder
// on the way down. Other files are left out, and so is what tools leave behind
// (IsLeftByTools()), which ImageFolder takes for classes and images. With
// `training`, the classes have the numbers of their names in that folder, and
// may be some of its classes.
//
// Throws IoError for a folder that cannot be read or has no class, for classes
// without images, and for classes that are not in `training`.
EncodedImages ListImageFolder(const std::filesystem::path& folder,
                              const std::filesystem::path& training = {});

// Opens tar files in WebDataset's layout: an example is the members KEY.jpg (or
// another image) and KEY.cls, the class number as text, one after the other.
// KEY has no dot behind its last slash. Other members are left out, KEY.seg.png
// too. Members without an extension and those that tools leave behind do not
// end an example. A link is read as the member to which it leads. `path` is a
// tar file or a folder of tar files (*.tar, in any case, in the order of their
// names). Reads their headers, one read per member; of files with links three
// times.
//
// Throws IoError for files that are not tar or are truncated, files without an
// example, an image without a class, a class outside [0, kMaxLabels), and two
// images with one key.
EncodedImages ListTarShards(const std::filesystem::path& path);

// Makes the source of listed images; reads each with one call.
std::unique_ptr<ImageSource> MakeEncodedSource(EncodedImages images);

}  // namespace replicant::data
