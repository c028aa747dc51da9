#pragma once

#include <cstdint>
#include <vector>

#include "base/error.h"

namespace replicant::data {

// An image that is damaged, too large or not there. A run leaves it out; any
// other error ends the run.
class DamagedImage : public IoError {
 public:
  using IoError::IoError;
};

struct ImageSize {
  int64_t height = 0;
  int64_t width = 0;
};

// A part of an image, in pixels; edges may lie between two pixels.
struct Box {
  double left = 0.0;
  double top = 0.0;
  double right = 0.0;
  double bottom = 0.0;

  double width() const { return right - left; }
  double height() const { return bottom - top; }
};

struct Image {
  ImageSize size;
  std::vector<uint8_t> rgb;  // [height, width, 3], row 0 on top
};

}  // namespace replicant::data
