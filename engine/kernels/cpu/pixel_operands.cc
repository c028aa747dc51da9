#include "engine/kernels/cpu/pixel_operands.h"

#include <algorithm>
#include <cstring>

#include "engine/kernels/cpu/vector_functions.h"

namespace replicant::kernels::cpu {

namespace {

// Pixels are read once, from memory. Converting a row takes less time than
// reading it, and memcpy() begins at its end, where the hardware prefetcher
// does not expect it.
constexpr int64_t kRowsAhead = 4;

// Beyond the pixels this has no effect.
void Prefetch(const uint8_t* row, int64_t size) {
  constexpr int64_t kCacheLine = 64;
  for (int64_t i = 0; i < size; i += kCacheLine) __builtin_prefetch(row + i);
}

}  // namespace

Windows WindowsOf(const graph::Attributes& attributes, const Shape& x,
                  const Shape& w, const Shape& y) {
  const int64_t stride = attributes.Int("stride");
  return {.height = w[2],
          .width = w[3] * x[3],
          .step_down = stride,
          .step = stride * x[3],
          .down = y[1],
          .across = y[2],
          .channels = w[0]};
}

PixelImages::PixelImages(const CpuRequest& request, const Windows& windows,
                         DType dtype)
    : windows_(windows),
      height_(request.input(0).shape[1]),
      width_(request.input(0).shape[2]),
      channels_(request.input(0).shape[3]),
      padding_(request.node.attributes.Int("padding")),
      row_size_bytes_(std::max((width_ + 2 * padding_) * channels_,
                               windows_.plain_row_size()) +
                      Windows::kBlock),
      scale_(static_cast<float>(request.node.attributes.Float("scale"))),
      offset_(static_cast<float>(request.node.attributes.Float("offset"))),
      is_shifted_(request.node.attributes.Has("is_shifted")),
      is_rounded_(dtype == DType::kBF16) {}

void PixelImages::Bind(const KernelBindings& bindings) {
  pixels_ = reinterpret_cast<const uint8_t*>(bindings.inputs[0]);
  if (is_shifted_) {
    offsets_ = reinterpret_cast<const int32_t*>(bindings.inputs.back());
  }
}

void PixelImages::MakeBlocks(int64_t n, uint8_t* rows, float* image) const {
  Make(
      windows_.blocked_row_size(), image,
      [&](int64_t i) { LoadRow(n, i, rows); },
      [&](float* to) {
        PixelsToBlocks(windows_, rows, scale_, offset_, to);
        Round(to, windows_.blocked_row_size());
      },
      [&](int64_t k) { return windows_.BlockedPlace(k); });
}

void PixelImages::MakePlain(int64_t n, uint8_t* rows, float* image) const {
  const int64_t row_size = windows_.plain_row_size();
  Make(
      row_size, image, [&](int64_t i) { LoadRow(n, i, rows); },
      [&](float* to) {
        PixelsToRow(rows, row_size, scale_, offset_, to);
        Round(to, row_size);
      },
      [](int64_t k) { return k; });
}

PixelRows PixelImages::LoadPixels(int64_t n, uint8_t* pixels) const {
  for (int64_t i = 0; i < windows_.num_rows(); ++i) {
    uint8_t* row = pixels + i * row_size_bytes_;
    // beyond the image any pixel will do, but always the same one
    const int64_t filled = i < height_ ? width_ * channels_ : 0;
    std::fill(row + filled, row + row_size_bytes_, uint8_t{0});
    if (i < height_) LoadRow(n, i, row);
  }
  return {pixels, row_size_bytes_, scale_, offset_};
}

void PixelImages::MakeBlocks(int64_t n, uint8_t* rows, BFloat16* image) const {
  // the loops multiply the numbers after the image's row by weights that are 0:
  // any pixel will do, but always the same one
  const int64_t after = (padding_ + width_) * channels_;
  std::fill(rows + after, rows + row_size_bytes_, uint8_t{0});
  Make(
      windows_.blocked_row_size(), image,
      [&](int64_t i) { LoadRow(n, i, rows); },
      [&](BFloat16* to) {
        PixelsToBlocksOfBF16(windows_, rows, scale_, offset_, to);
      },
      [&](int64_t k) { return windows_.BlockedPlace(k); });
}

void PixelImages::MakePairs(int64_t n, int64_t m, uint8_t* rows,
                            BF16Pair* images) const {
  uint8_t* second = rows + row_size_bytes_;
  const int64_t row_size = windows_.plain_row_size();
  Make(
      row_size, images,
      [&](int64_t i) {
        LoadRow(n, i, rows);
        LoadRow(m, i, second);
      },
      [&](BF16Pair* to) {
        PixelsToPairs(rows, second, row_size, scale_, offset_, to);
      },
      [](int64_t k) { return k; });
}

template <typename Number, typename Load, typename Convert, typename Place>
void PixelImages::Make(int64_t row_size, Number* image, const Load& load,
                       const Convert& convert, const Place& place) const {
  const int64_t before = padding_ * channels_;
  const int64_t after =
      std::min(before + width_ * channels_, windows_.plain_row_size());
  for (int64_t r = 0; r < windows_.num_rows(); ++r, image += row_size) {
    const int64_t i = r - padding_;
    if (i < 0 || i >= height_) {
      std::fill_n(image, row_size, Number{});
      continue;
    }
    load(i);
    convert(image);
    if (padding_ == 0) continue;
    for (int64_t k = 0; k < before; ++k) image[place(k)] = Number{};
    for (int64_t k = after; k < windows_.plain_row_size(); ++k) {
      image[place(k)] = Number{};
    }
  }
}

void PixelImages::LoadRow(int64_t n, int64_t i, uint8_t* row) const {
  const int64_t down = is_shifted_ ? offsets_[2 * n] : 0;
  const int64_t right = is_shifted_ ? offsets_[2 * n + 1] : 0;
  const int64_t line =
      n * height_ + std::clamp<int64_t>(i + down, 0, height_ - 1);
  const auto pixel = static_cast<size_t>(channels_);
  const uint8_t* from = pixels_ + line * width_ * channels_;
  uint8_t* to = row + padding_ * channels_;
  const auto copy = [&](int64_t source, int64_t target, int64_t count) {
    std::memcpy(to + target * channels_, from + source * channels_,
                static_cast<size_t>(count) * pixel);
  };
  // pixels of the result that have a source pixel in the row; the others repeat
  // its first or last pixel
  const int64_t first = std::clamp<int64_t>(-right, 0, width_);
  const int64_t last = std::clamp<int64_t>(width_ - right, first, width_);
  for (int64_t j = 0; j < first; ++j) copy(0, j, 1);
  if (last > first) copy(first + right, first, last - first);
  const int64_t border = right > 0 ? width_ - 1 : 0;
  for (int64_t j = last; j < width_; ++j) copy(border, j, 1);
  Prefetch(from + kRowsAhead * width_ * channels_, width_ * channels_);
}

void PixelImages::Round(float* row, int64_t row_size) const {
  if (!is_rounded_) return;
  BF16RoundingFunction()(row, nullptr, nullptr, 0.0f, 0.0f, row,
                         static_cast<size_t>(row_size));
}

WindowWeights::WindowWeights(const Windows& windows, const Shape& w,
                             int64_t lanes)
    : windows_(windows),
      o_(w[0]),
      c_(w[1]),
      kh_(w[2]),
      kw_(w[3]),
      lanes_(lanes),
      num_vectors_((o_ + lanes_ - 1) / lanes_) {}

template <typename T>
void WindowWeights::Pack(const T* w, float* packed) const {
  for (int64_t vector = 0; vector < num_vectors_; ++vector) {
    for (int64_t u = 0; u < kh_; ++u) {
      for (int64_t k = 0; k < c_ * kw_; ++k) {
        for (int64_t lane = 0; lane < lanes_; ++lane) {
          const int64_t o = vector * lanes_ + lane;
          *packed++ = o < o_
                          ? static_cast<float>(w[o * c_ * kh_ * kw_ + At(u, k)])
                          : 0.0f;
        }
      }
    }
  }
}
template void WindowWeights::Pack(const float* w, float* packed) const;
template void WindowWeights::Pack(const BFloat16* w, float* packed) const;

void WindowWeights::Unpack(const float* packed, float* w) const {
  for (int64_t vector = 0; vector < num_vectors_; ++vector) {
    const int64_t first = vector * lanes_;
    const int64_t count = std::min(lanes_, o_ - first);
    for (int64_t u = 0; u < kh_; ++u) {
      for (int64_t k = 0; k < c_ * kw_; ++k) {
        for (int64_t lane = 0; lane < count; ++lane) {
          w[(first + lane) * c_ * kh_ * kw_ + At(u, k)] = packed[lane];
        }
        packed += lanes_;
      }
    }
  }
}

void WindowWeights::PackPairs(const BFloat16* w, BF16Pair* packed) const {
  constexpr BFloat16 kZero(0.0f);
  for (int64_t vector = 0; vector < num_vectors_; ++vector) {
    for (int64_t u = 0; u < kh_; ++u) {
      windows_.ForPieces([&](int64_t begin, int64_t n) {
        for (int64_t k = begin; k < begin + n; k += 2) {
          for (int64_t lane = 0; lane < lanes_; ++lane) {
            const int64_t o = vector * lanes_ + lane;
            const BFloat16* of = w + o * c_ * kh_ * kw_;
            const bool has_second = k + 1 < begin + n;
            *packed++ = {
                .first = o < o_ ? of[At(u, k)] : kZero,
                .second = o < o_ && has_second ? of[At(u, k + 1)] : kZero};
          }
        }
      });
    }
  }
}

ThreadScratch::ThreadScratch(int num_threads,
                             std::initializer_list<size_t> sizes_bytes,
                             ScratchLayout* scratch)
    : num_threads_(num_threads) {
  ScratchLayout one;
  for (const size_t size : sizes_bytes) parts_.push_back(one.Add(size));
  size_bytes_ = one.size_bytes();
  offset_ = scratch->Add(size_bytes_ * static_cast<size_t>(num_threads));
}

}  // namespace replicant::kernels::cpu
