#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "learner/data/left_out.h"
#include "learner/data/view.h"

namespace replicant::data {

// Reads examples of one source.
//
// Thread-safety: one thread at a time; readers are independent.
class ImageReader {
 public:
  virtual ~ImageReader() = default;

  // Writes the part of example `index` that `view` shows to `rgb`, u8 [side,
  // side, 3], row 0 on top, and returns its class. A function of the index and
  // the view. Throws DamagedImage, which names the example, if it is damaged or
  // missing, and IoError if the system cannot read it.
  virtual int32_t Read(int64_t index, View view, int64_t side,
                       std::span<uint8_t> rgb) = 0;
};

// A set of labelled images, each with an index in [0, size()). The pipeline
// chooses the images of a batch (learner/data/image_pipeline.h).
//
// Thread-safety: all methods are const and may run concurrently.
class ImageSource {
 public:
  virtual ~ImageSource() = default;

  virtual int64_t size() const = 0;
  // Names of the classes, by number; empty if there are none.
  virtual const std::vector<std::string>& class_names() const = 0;
  // Classes are in [0, num_classes()).
  virtual int64_t num_classes() const = 0;
  // Sizes of the runs of indices that are contiguous on disk, such as shards;
  // they sum to size().
  virtual std::vector<int64_t> BlockSizes() const { return {size()}; }
  // Number of images of each class; empty if it is not known without reading.
  virtual std::vector<int64_t> ClassSizes() const { return {}; }
  // Files and members that the source passed over.
  virtual std::vector<LeftOut> left_out() const { return {}; }
  // Where image `index` is, for messages.
  virtual std::string NameOf(int64_t index) const {
    return "image " + std::to_string(index);
  }
  virtual std::unique_ptr<ImageReader> MakeReader() const = 0;
};

// The names, or numbers, of classes without an image; none if the source does
// not know the sizes of its classes.
std::vector<std::string> EmptyClasses(const ImageSource& source);
// "4 images, 2 classes (finch, heron); left out: hidden files: 1 (._a.jpg)".
// Names classes without an image.
std::string Describe(const ImageSource& source);
// Whether it has left out what may be images (LeftOut::is_loss).
bool HasLosses(const ImageSource& source);

}  // namespace replicant::data
