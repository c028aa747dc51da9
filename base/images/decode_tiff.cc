#include <fmt/format.h>
#include <tiffio.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "base/images/decode.h"

namespace replicant::data {
namespace {

// Memory that libtiff may take at once, for a damaged size of a strip.
constexpr tmsize_t kMaxAllocation = tmsize_t{1} << 30;

// The bytes of a file, as libtiff reads them, and its last error.
struct Source {
  std::span<const std::byte> bytes;
  toff_t position = 0;
  std::array<char, 256> error = {};
};

tmsize_t Read(thandle_t handle, void* out, tmsize_t size) {
  auto& source = *static_cast<Source*>(handle);
  const toff_t left = source.bytes.size() -
                      std::min<toff_t>(source.position, source.bytes.size());
  const auto count = std::min<toff_t>(static_cast<toff_t>(size), left);
  if (count == 0) return 0;
  std::memcpy(out, source.bytes.data() + source.position, count);
  source.position += count;
  return static_cast<tmsize_t>(count);
}

tmsize_t Write(thandle_t /*handle*/, void* /*bytes*/, tmsize_t /*size*/) {
  return -1;
}

toff_t Seek(thandle_t handle, toff_t offset, int whence) {
  auto& source = *static_cast<Source*>(handle);
  const toff_t origin = whence == SEEK_CUR   ? source.position
                        : whence == SEEK_END ? source.bytes.size()
                                             : 0;
  source.position = origin + offset;
  return source.position;
}

int Close(thandle_t /*handle*/) { return 0; }

toff_t Size(thandle_t handle) {
  return static_cast<Source*>(handle)->bytes.size();
}

int OnError(TIFF* /*tiff*/, void* source, const char* /*module*/,
            const char* format, va_list arguments) {
  auto& error = static_cast<Source*>(source)->error;
  std::vsnprintf(error.data(), error.size(), format, arguments);
  return 1;
}

int OnWarning(TIFF* /*tiff*/, void* /*source*/, const char* /*module*/,
              const char* /*format*/, va_list /*arguments*/) {
  return 1;
}

using TiffPtr = std::unique_ptr<TIFF, decltype(&TIFFClose)>;

TiffPtr Open(Source* source) {
  const std::unique_ptr<TIFFOpenOptions, decltype(&TIFFOpenOptionsFree)>
      options(TIFFOpenOptionsAlloc(), &TIFFOpenOptionsFree);
  TIFFOpenOptionsSetMaxSingleMemAlloc(options.get(), kMaxAllocation);
  TIFFOpenOptionsSetErrorHandlerExtR(options.get(), &OnError, source);
  TIFFOpenOptionsSetWarningHandlerExtR(options.get(), &OnWarning, source);
  // m: not mapped
  return {TIFFClientOpenExt("image", "rm", source, &Read, &Write, &Seek, &Close,
                            &Size, nullptr, nullptr, options.get()),
          &TIFFClose};
}

// Colours would be multiplied by alpha: declares that they are already.
void KeepColoursUnderAlpha(TIFF* tiff) {
  uint16_t count = 0;
  uint16_t* kinds = nullptr;
  if (TIFFGetField(tiff, TIFFTAG_EXTRASAMPLES, &count, &kinds) == 0) return;
  std::vector<uint16_t> changed(kinds, kinds + count);
  std::ranges::replace(changed, uint16_t{EXTRASAMPLE_UNASSALPHA},
                       uint16_t{EXTRASAMPLE_ASSOCALPHA});
  TIFFSetField(tiff, TIFFTAG_EXTRASAMPLES, count, changed.data());
}

}  // namespace

Box DecodeTiff(std::span<const std::byte> bytes, const std::string& where,
               const ChooseBox& choose, Image* image) {
  Source source{.bytes = bytes};
  const auto check = [&](bool is_good) {
    if (is_good) return;
    throw DamagedImage(
        fmt::format("{}: damaged TIFF: {}", where, source.error.data()));
  };
  const TiffPtr tiff = Open(&source);
  check(tiff != nullptr);
  uint32_t width = 0;
  uint32_t height = 0;
  check(TIFFGetField(tiff.get(), TIFFTAG_IMAGEWIDTH, &width) != 0 &&
        TIFFGetField(tiff.get(), TIFFTAG_IMAGELENGTH, &height) != 0);
  const ImageSize size{.height = height, .width = width};
  CheckSize(size, where);
  const Box box = choose(size);
  KeepColoursUnderAlpha(tiff.get());
  // the reader mirrors by the tag, but does not turn
  TIFFSetField(tiff.get(), TIFFTAG_ORIENTATION, ORIENTATION_TOPLEFT);
  SetSize(size, image);
  std::vector<uint32_t> abgr(image->rgb.size() / 3);
  check(TIFFReadRGBAImageOriented(tiff.get(), width, height, abgr.data(),
                                  ORIENTATION_TOPLEFT,
                                  /*stopOnError=*/1) != 0);
  for (size_t i = 0; i < abgr.size(); ++i) {
    image->rgb[i * 3] = static_cast<uint8_t>(TIFFGetR(abgr[i]));
    image->rgb[i * 3 + 1] = static_cast<uint8_t>(TIFFGetG(abgr[i]));
    image->rgb[i * 3 + 2] = static_cast<uint8_t>(TIFFGetB(abgr[i]));
  }
  return box;
}

}  // namespace replicant::data
