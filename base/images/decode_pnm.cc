#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/images/decode.h"

namespace replicant::data {
namespace {

// Reads the numbers of a PNM file.
//
// Source: the manual pages pgm(5) and ppm(5) of Netpbm.
class PnmReader {
 public:
  explicit PnmReader(std::span<const std::byte> bytes)
      : text_(reinterpret_cast<const char*>(bytes.data()), bytes.size()) {}

  // The next number in digits, behind blanks and comments.
  std::optional<int64_t> Number() {
    while (at_ < text_.size() && (IsBlank(text_[at_]) || text_[at_] == '#')) {
      at_ = text_[at_] == '#' ? text_.find('\n', at_) : at_ + 1;
    }
    std::optional<int64_t> value;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9';
         ++at_) {
      value = value.value_or(0) * 10 + (text_[at_] - '0');
      if (*value > kMaxNumber) return std::nullopt;
    }
    return value;
  }
  // The next number of one or two bytes.
  std::optional<int64_t> Binary(int num_bytes) {
    if (text_.size() - std::min(at_, text_.size()) <
        static_cast<size_t>(num_bytes)) {
      return std::nullopt;
    }
    int64_t value = 0;
    for (int i = 0; i < num_bytes; ++i) {
      value = value << 8 | static_cast<uint8_t>(text_[at_++]);
    }
    return value;
  }
  // Moves on by one byte.
  void Skip() { ++at_; }

  char kind() const { return text_[1]; }

 private:
  static constexpr int64_t kMaxNumber = 1 << 30;

  static bool IsBlank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

  const std::string_view text_;
  size_t at_ = 2;  // behind the P and the digit of the kind
};

}  // namespace

Box DecodePnm(std::span<const std::byte> bytes, const std::string& where,
              const ChooseBox& choose, Image* image) {
  PnmReader reader(bytes);
  const bool is_binary = reader.kind() >= '5';
  const bool is_grey = reader.kind() == '2' || reader.kind() == '5';
  const auto width = reader.Number();
  const auto height = reader.Number();
  const auto largest = reader.Number();
  if (!width || !height || !largest || *width < 1 || *height < 1 ||
      *largest < 1 || *largest > 65535) {
    throw DamagedImage(fmt::format("{}: damaged PNM: no header", where));
  }
  const ImageSize size{.height = *height, .width = *width};
  CheckSize(size, where);
  const Box box = choose(size);
  reader.Skip();
  SetSize(size, image);
  const int num_bytes = *largest > 255 ? 2 : 1;
  // 16 bits keep the high ones, as in a PNG
  const auto scaled = [&](int64_t value) {
    value = std::min(value, *largest);
    return static_cast<uint8_t>(*largest == 65535
                                    ? value >> 8
                                    : (value * 255 + *largest / 2) / *largest);
  };
  for (size_t i = 0; i < image->rgb.size(); ++i) {
    if (is_grey && i % 3 != 0) {
      image->rgb[i] = image->rgb[i - 1];
      continue;
    }
    const auto value = is_binary ? reader.Binary(num_bytes) : reader.Number();
    if (!value) {
      throw DamagedImage(
          fmt::format("{}: damaged PNM: it ends at value {} of its pixels",
                      where, is_grey ? i / 3 : i));
    }
    image->rgb[i] = scaled(*value);
  }
  return box;
}

}  // namespace replicant::data
