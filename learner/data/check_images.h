#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "learner/data/image_source.h"

namespace replicant::data {

struct ImageCheckOptions {
  int64_t side = 224;          // pixels, as the network sees them
  int64_t max_images = 10000;  // 0: all
  int threads = 1;
};

// A result of CheckImages().
struct ImageCheck {
  // An image that was read.
  struct Read {
    int64_t index = 0;  // of the source
    int32_t label = 0;
    // Equal for images of equal pixels after the resize.
    uint64_t digest = 0;
  };
  // One that cannot be read, and why; begins with its name.
  struct Unreadable {
    int64_t index = 0;
    std::string message;
  };

  std::vector<Read> read;              // by index
  std::vector<Unreadable> unreadable;  // by index
  double seconds = 0.0;

  int64_t num_tried() const {
    return static_cast<int64_t>(read.size() + unreadable.size());
  }
};

// Reads the images of a source, or max_images of them, evenly spread. All of
// each image is decoded.
ImageCheck CheckImages(const ImageSource& source,
                       const ImageCheckOptions& options);

// Two images with equal pixels.
struct ImagePair {
  int64_t first = 0;
  int64_t second = 0;
  bool has_one_class = true;
};

// Each image of `b` that an earlier one of `a` equals, in the order of `b`. An
// image has no pair with itself: `a` and `b` may be one object.
std::vector<ImagePair> FindCopies(const ImageCheck& a, const ImageCheck& b);

}  // namespace replicant::data
