#include <fmt/format.h>
#include <png.h>

#include <csetjmp>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/images/decode.h"

namespace replicant::data {
namespace {

// A reader of one PNG, with libpng's errors as return values. libpng leaves its
// functions by longjmp, so that no function here that calls them may hold an
// object with a destructor.
class PngReader {
 public:
  explicit PngReader(std::span<const std::byte> bytes) : left_(bytes) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this,
                                  &PngReader::OnError, &PngReader::OnWarning);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  // Each returns false after an error.
  bool ReadHeader() {
    if (info_ == nullptr) return false;
    if (setjmp(jump_) != 0) return false;
    png_set_read_fn(png_, this, &PngReader::OnRead);
    png_set_user_limits(png_, 1'000'000, 1'000'000);
    png_read_info(png_, info_);
    return true;
  }
  bool StartRows() {
    if (setjmp(jump_) != 0) return false;
    png_set_expand(png_);
    png_set_strip_16(png_);
    png_set_strip_alpha(png_);
    png_set_gray_to_rgb(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return png_get_rowbytes(png_, info_) == size_t{width()} * 3;
  }
  bool ReadRows(uint8_t** rows) {
    if (setjmp(jump_) != 0) return false;
    png_read_image(png_, rows);
    return true;
  }

  uint32_t width() const { return png_get_image_width(png_, info_); }
  uint32_t height() const { return png_get_image_height(png_, info_); }
  const char* error_text() const { return error_; }

 private:
  [[noreturn]] static void OnError(png_structp png, png_const_charp text) {
    auto& reader = *static_cast<PngReader*>(png_get_error_ptr(png));
    std::strncpy(reader.error_, text, sizeof(reader.error_) - 1);
    std::longjmp(reader.jump_, 1);
  }
  static void OnWarning(png_structp /*png*/, png_const_charp /*text*/) {}
  static void OnRead(png_structp png, png_bytep out, size_t size) {
    auto& reader = *static_cast<PngReader*>(png_get_io_ptr(png));
    if (size > reader.left_.size()) png_error(png, "the file is cut off");
    std::memcpy(out, reader.left_.data(), size);
    reader.left_ = reader.left_.subspan(size);
  }

  std::span<const std::byte> left_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::jmp_buf jump_;
  char error_[128] = "not enough memory";
};

}  // namespace

Box DecodePng(std::span<const std::byte> bytes, const std::string& where,
              const ChooseBox& choose, Image* image) {
  PngReader png(bytes);
  const auto check = [&](bool is_good) {
    if (is_good) return;
    throw DamagedImage(
        fmt::format("{}: damaged PNG: {}", where, png.error_text()));
  };
  check(png.ReadHeader());
  const ImageSize size{.height = png.height(), .width = png.width()};
  CheckSize(size, where);
  const Box box = choose(size);
  check(png.StartRows());
  SetSize(size, image);
  std::vector<uint8_t*> rows(static_cast<size_t>(size.height));
  for (size_t y = 0; y < rows.size(); ++y) {
    rows[y] = image->rgb.data() + y * static_cast<size_t>(size.width) * 3;
  }
  check(png.ReadRows(rows.data()));
  return box;
}

}  // namespace replicant::data
