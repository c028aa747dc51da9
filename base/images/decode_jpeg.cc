#include <csetjmp>
#include <cstdio>

// jpeglib.h needs the lines above
#include <fmt/format.h>
#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/images/decode.h"

namespace replicant::data {
namespace {

// Pixels around the box that are decoded too: for the support of a filter that
// does not reduce, and for the chroma's.
constexpr int64_t kMargin = 4;
// A progressive image may have any number of scans, each as long as the image.
constexpr int kMaxScans = 200;

// A decompressor, with libjpeg's errors as return values. libjpeg leaves its
// functions by longjmp, so that no function here that calls them may hold an
// object with a destructor.
class Decompressor {
 public:
  explicit Decompressor(std::span<const std::byte> bytes) {
    info_.err = jpeg_std_error(&errors_);
    errors_.error_exit = &Decompressor::OnError;
    errors_.emit_message = &Decompressor::OnMessage;
    info_.client_data = this;
    if (setjmp(jump_) != 0) return;
    jpeg_create_decompress(&info_);
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(bytes.data()),
                 bytes.size());
    is_open_ = true;
  }
  ~Decompressor() { jpeg_destroy_decompress(&info_); }
  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;

  // Each returns false after an error.
  bool ReadHeader() {
    if (!is_open_ || setjmp(jump_) != 0) return false;
    jpeg_read_header(&info_, TRUE);
    return true;
  }
  bool Start(int scale_denominator) {
    if (setjmp(jump_) != 0) return false;
    const bool is_cmyk = info_.jpeg_color_space == JCS_CMYK ||
                         info_.jpeg_color_space == JCS_YCCK;
    info_.out_color_space = is_cmyk ? JCS_CMYK : JCS_RGB;
    info_.scale_num = 1;
    info_.scale_denom = static_cast<unsigned>(scale_denominator);
    progress_.progress_monitor = &Decompressor::OnProgress;
    info_.progress = &progress_;
    jpeg_start_decompress(&info_);
    return true;
  }
  // Moves the left edge outwards to where decoding can begin.
  bool Crop(JDIMENSION* left, JDIMENSION* width) {
    if (setjmp(jump_) != 0) return false;
    jpeg_crop_scanline(&info_, left, width);
    return true;
  }
  bool Skip(JDIMENSION rows) {
    if (setjmp(jump_) != 0) return false;
    return jpeg_skip_scanlines(&info_, rows) == rows;
  }
  bool ReadRow(uint8_t* row) {
    if (setjmp(jump_) != 0) return false;
    return jpeg_read_scanlines(&info_, &row, 1) == 1;
  }

  const jpeg_decompress_struct& info() const { return info_; }
  std::string ErrorText() {
    char text[JMSG_LENGTH_MAX];
    errors_.format_message(reinterpret_cast<j_common_ptr>(&info_), text);
    return text;
  }

 private:
  static Decompressor& Of(j_common_ptr info) {
    return *static_cast<Decompressor*>(info->client_data);
  }
  [[noreturn]] static void OnError(j_common_ptr info) {
    std::longjmp(Of(info).jump_, 1);
  }
  // Among the warnings, only missing data is an error: what is decoded then is
  // grey. Others, such as bytes between two segments, are common.
  static void OnMessage(j_common_ptr info, int level) {
    const int code = info->err->msg_code;
    if (level < 0 && (code == JWRN_HIT_MARKER || code == JWRN_JPEG_EOF)) {
      OnError(info);
    }
  }
  static void OnProgress(j_common_ptr info) {
    if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number >
        kMaxScans) {
      ERREXIT(info, JERR_BAD_PROGRESSION);
    }
  }

  jpeg_decompress_struct info_ = {};
  jpeg_error_mgr errors_ = {};
  jpeg_progress_mgr progress_ = {};
  std::jmp_buf jump_;
  bool is_open_ = false;
};

// Writes rows of CMYK as RGB. CMYK is inverted, as Adobe's programs write it;
// files without Adobe's marker are too, as Pillow and torchvision read them.
void ConvertCmyk(const std::vector<uint8_t>& cmyk, uint8_t* rgb) {
  for (size_t i = 0; i + 3 < cmyk.size(); i += 4) {
    for (size_t c = 0; c < 3; ++c) {
      *rgb++ = static_cast<uint8_t>((cmyk[i + c] * cmyk[i + 3] + 127) / 255);
    }
  }
}

// The largest reduction by the transform that leaves `box` at least `min_side`
// pixels.
int ScaleDenominator(const Box& box, int64_t min_side) {
  const double side = std::min(box.width(), box.height());
  int denominator = 1;
  while (denominator < 8 &&
         side >= static_cast<double>(2 * denominator * min_side)) {
    denominator *= 2;
  }
  return denominator;
}

// Where a range of the image's pixels lies after decoding; with a margin.
struct Range {
  Range(double low, double high, double scale, int64_t min_side, int64_t size) {
    const double reduction =
        (high - low) / scale / static_cast<double>(min_side);
    const int64_t margin = kMargin + static_cast<int64_t>(std::ceil(reduction));
    begin = std::max<int64_t>(
        static_cast<int64_t>(std::floor(low / scale)) - margin, 0);
    end = std::min<int64_t>(
        static_cast<int64_t>(std::ceil(high / scale)) + margin, size);
  }
  int64_t begin, end;
};

}  // namespace

Box DecodeJpeg(std::span<const std::byte> bytes, const std::string& where,
               const ChooseBox& choose, int64_t min_side, Image* image) {
  Decompressor jpeg(bytes);
  const auto check = [&](bool is_good) {
    if (is_good) return;
    throw DamagedImage(
        fmt::format("{}: damaged JPEG: {}", where, jpeg.ErrorText()));
  };
  check(jpeg.ReadHeader());
  const ImageSize size{.height = jpeg.info().image_height,
                       .width = jpeg.info().image_width};
  CheckSize(size, where);
  const Box box = choose(size);
  const int denominator = ScaleDenominator(box, min_side);
  check(jpeg.Start(denominator));
  // a pixel covers so many of the file's on each axis
  const double scale = denominator;
  const int64_t width = jpeg.info().output_width;
  const int64_t height = jpeg.info().output_height;
  const Range columns(box.left, box.right, scale, min_side, width);
  const Range rows(box.top, box.bottom, scale, min_side, height);

  auto left = static_cast<JDIMENSION>(columns.begin);
  auto num_columns = static_cast<JDIMENSION>(columns.end - columns.begin);
  check(jpeg.Crop(&left, &num_columns));
  SetSize({.height = rows.end - rows.begin, .width = num_columns}, image);
  check(jpeg.Skip(static_cast<JDIMENSION>(rows.begin)));
  const bool is_cmyk = jpeg.info().out_color_space == JCS_CMYK;
  std::vector<uint8_t> cmyk(is_cmyk ? size_t{num_columns} * 4 : 0);
  uint8_t* rgb = image->rgb.data();
  for (int64_t y = rows.begin; y < rows.end; ++y) {
    check(jpeg.ReadRow(is_cmyk ? cmyk.data() : rgb));
    if (is_cmyk) ConvertCmyk(cmyk, rgb);
    rgb += size_t{num_columns} * 3;
  }
  const auto offset_x = static_cast<double>(left);
  const auto offset_y = static_cast<double>(rows.begin);
  return {.left = box.left / scale - offset_x,
          .top = box.top / scale - offset_y,
          .right = std::min(box.right / scale - offset_x,
                            static_cast<double>(image->size.width)),
          .bottom = std::min(box.bottom / scale - offset_y,
                             static_cast<double>(image->size.height))};
}

}  // namespace replicant::data
