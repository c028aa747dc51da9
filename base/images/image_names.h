#pragma once

#include <string>
#include <string_view>

// What the name of a file says about it.
namespace replicant::data {

// "a .jpg, .jpeg, ... or .webp file": the extensions of images that are read,
// torchvision's (ImageFolder's), in any case.
inline constexpr const char* kImageFiles =
    ".jpg, .jpeg, .png, .ppm, .bmp, .pgm, .tif, .tiff or .webp files";

// The part after the dot at `dot`, if there is one, in lower case.
std::string LowerExtension(std::string_view name, size_t dot);

// Takes LowerExtension(): an image that is read, or one of a format that is
// not (gif, heic, ...).
bool IsImageExtension(std::string_view extension);
bool IsForeignImageExtension(std::string_view extension);

// Whether a tool has left this file or folder behind, so that it is no data:
// hidden ones (.ipynb_checkpoints, .thumbnails, .DS_Store, macOS's ._NAME),
// __MACOSX, PaxHeader, @eaDir.
bool IsLeftByTools(std::string_view name);

// The same for the parts of a path.
bool IsLeftByToolsInPath(std::string_view path);

}  // namespace replicant::data
