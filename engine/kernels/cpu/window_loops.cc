#include "engine/kernels/cpu/window_loops.h"

#include <algorithm>

#include "base/instruction_sets.h"

// Compiled once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/cpu/window_loops.cc"
// clang-format off: foreach_target.h comes before the code that it repeats
#include <hwy/foreach_target.h>
// clang-format on
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace replicant::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
using DBytes = hn::Rebind<uint8_t, D>;
using DWords = hn::RebindToSigned<D>;

// Registers for sums: all of the processor's except the ones for operands.
constexpr size_t kSums = hn::MaxLanes(D()) >= 16 ? 28 : 12;
// Floats of the weights or the image that should stay in the first-level cache
// while they are used again.
constexpr int64_t kFirstLevelFloats = 5 * 1024;

int64_t Lanes() { return static_cast<int64_t>(hn::Lanes(D())); }

HWY_INLINE V ToNumbers(const uint8_t* x, V scale, V offset) {
  const auto words = hn::PromoteTo(DWords(), hn::LoadU(DBytes(), x));
  return hn::MulAdd(scale, hn::ConvertTo(D(), words), offset);
}

void ToRow(const uint8_t* x, int64_t n, float scale, float offset, float* out) {
  const D d;
  const int64_t lanes = Lanes();
  const V vscale = hn::Set(d, scale);
  const V voffset = hn::Set(d, offset);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(ToNumbers(x + i, vscale, voffset), d, out + i);
  }
  if (i == n) return;
  // copy the rest to a full vector: the same code gives the same bits
  constexpr auto kMost = static_cast<int64_t>(hn::MaxLanes(D()));
  const int64_t num_rest = std::min(n - i, kMost);
  uint8_t rest[kMost] = {};
  std::copy_n(x + i, num_rest, rest);
  float numbers[kMost];
  hn::StoreU(ToNumbers(rest, vscale, voffset), d, numbers);
  std::copy_n(numbers, num_rest, out + i);
}

void ToBlocks(const Windows& s, const uint8_t* x, float scale, float offset,
              float* out) {
  const D d;
  const int64_t lanes = Lanes();
  const V vscale = hn::Set(d, scale);
  const V voffset = hn::Set(d, offset);
  const int64_t num_steps = s.num_steps();
  const int64_t step_size = s.step;
  for (int64_t block = 0; block < step_size; block += Windows::kBlock) {
    const uint8_t* from = x + block;
    for (int64_t step = 0; step < num_steps; ++step, from += step_size) {
      for (int64_t i = 0; i < Windows::kBlock; i += lanes) {
        hn::StoreU(ToNumbers(from + i, vscale, voffset), d, out);
        out += lanes;
      }
    }
  }
}

// The vectors of channels that a loop computes: kVectors from the first one on.
// The last may be partly filled.
struct Channels {
  int64_t first;  // channel
  size_t in_last;

  // Masked stores of AVX2 are slow.
  template <size_t kVectors>
  HWY_INLINE bool IsWhole(size_t v) const {
    return v + 1 < kVectors || in_last == hn::Lanes(D());
  }
  template <size_t kVectors>
  HWY_INLINE V Load(const float* row, size_t v) const {
    const float* from = row + first + static_cast<int64_t>(v) * Lanes();
    return IsWhole<kVectors>(v)
               ? hn::LoadU(D(), from)
               : hn::MaskedLoad(hn::FirstN(D(), in_last), D(), from);
  }
  template <size_t kVectors>
  HWY_INLINE void Store(V value, float* row, size_t v) const {
    float* to = row + first + static_cast<int64_t>(v) * Lanes();
    if (IsWhole<kVectors>(v)) {
      hn::StoreU(value, D(), to);
    } else {
      hn::BlendedStore(value, hn::FirstN(D(), in_last), D(), to);
    }
  }
};

// Rows of all windows from `u` on.
struct ForwardPart {
  const Windows& s;
  Channels channels;
  int64_t u, num_u;
  const float* image;
  int64_t row_size;        // floats of a row of the image
  int64_t block_distance;  // floats from a block of a step to the next
  const float* w;          // of the first vector
  const float* bias;       // of the first vector
  float* y;
};

// Adds the rows to the results of kColumns adjacent windows of a row.
template <size_t kVectors, size_t kColumns>
HWY_NOINLINE void ForwardTile(const ForwardPart& part, int64_t row,
                              int64_t column) {
  const D d;
  const int64_t lanes = Lanes();
  const Windows& s = part.s;
  float* y = part.y + (row * s.across + column) * s.channels;
  V sums[kVectors * kColumns];
  HWY_UNROLL(28) for (size_t i = 0; i < kVectors * kColumns; ++i) {
    const size_t v = i % kVectors;
    const auto t = static_cast<int64_t>(i / kVectors);
    sums[i] = part.u == 0 && part.bias != nullptr
                  ? hn::LoadU(d, part.bias + static_cast<int64_t>(v) * lanes)
                  : part.channels.Load<kVectors>(y + t * s.channels, v);
  }
  const int64_t row_size = part.row_size;
  const int64_t block_distance = part.block_distance;
  const int64_t width = s.width;
  const int64_t step = s.step;
  const float* w[kVectors];
  for (size_t v = 0; v < kVectors; ++v) {
    w[v] = part.w +
           (static_cast<int64_t>(v) * s.height + part.u) * s.width * lanes;
  }
  const float* image = part.image + (row * s.step_down + part.u) * row_size +
                       column * Windows::kBlock;
  for (int64_t u = 0; u < part.num_u; ++u, image += row_size) {
    // the run in pieces: steps, and blocks of a step
    const float* of_step = image;
    for (int64_t begin = 0; begin < width; begin += step) {
      const int64_t end = std::min(step, width - begin);
      const float* x = of_step;
      for (int64_t k = 0; k < end; k += Windows::kBlock) {
        const int64_t n = std::min(Windows::kBlock, end - k);
        for (int64_t i = 0; i < n; ++i) {
          V weights[kVectors];
          HWY_UNROLL(2) for (size_t v = 0; v < kVectors; ++v) {
            weights[v] = hn::LoadU(d, w[v]);
            w[v] += lanes;
          }
          HWY_UNROLL(28) for (size_t t = 0; t < kColumns; ++t) {
            const V number = hn::Set(d, x[t * Windows::kBlock + i]);
            HWY_UNROLL(2) for (size_t v = 0; v < kVectors; ++v) {
              V& sum = sums[t * kVectors + v];
              sum = hn::MulAdd(number, weights[v], sum);
            }
          }
        }
        x += block_distance;
      }
      of_step += Windows::kBlock;
    }
  }
  HWY_UNROLL(28) for (size_t i = 0; i < kVectors * kColumns; ++i) {
    const auto t = static_cast<int64_t>(i / kVectors);
    part.channels.Store<kVectors>(sums[i], y + t * s.channels, i % kVectors);
  }
}

// Some rows of windows, and row `u` of each.
struct GradientPart {
  const Windows& s;
  Channels channels;
  int64_t first, last;  // rows of windows
  int64_t u;
  const float* image;
  int64_t row_size;  // floats of a row of the image
  const float* dy;
  float* dw;  // of the first vector
};

// Adds the rows to the gradients of kNumbers weights of a run, from `k` on.
template <size_t kVectors, size_t kNumbers>
HWY_NOINLINE void GradientTile(const GradientPart& part, int64_t k) {
  const D d;
  const int64_t lanes = Lanes();
  const Windows& s = part.s;
  const auto place = [&](size_t i) HWY_ATTR {
    const auto v = static_cast<int64_t>(i % kVectors);
    const auto number = static_cast<int64_t>(i / kVectors);
    return part.dw + ((v * s.height + part.u) * s.width + k + number) * lanes;
  };
  V sums[kVectors * kNumbers];
  HWY_UNROLL(28) for (size_t i = 0; i < kVectors * kNumbers; ++i) {
    sums[i] = hn::LoadU(d, place(i));
  }
  const float* dy = part.dy + part.first * s.across * s.channels;
  const int64_t distance = s.step_down * part.row_size;
  const float* first =
      part.image + part.first * distance + part.u * part.row_size + k;
  for (int64_t row = part.first; row < part.last; ++row, first += distance) {
    const float* x = first;
    for (int64_t column = 0; column < s.across; ++column) {
      V gradients[kVectors];
      HWY_UNROLL(2) for (size_t v = 0; v < kVectors; ++v) {
        gradients[v] = part.channels.Load<kVectors>(dy, v);
      }
      HWY_UNROLL(28) for (size_t t = 0; t < kNumbers; ++t) {
        const V number = hn::Set(d, x[t]);
        HWY_UNROLL(2) for (size_t v = 0; v < kVectors; ++v) {
          V& sum = sums[t * kVectors + v];
          sum = hn::MulAdd(number, gradients[v], sum);
        }
      }
      x += s.step;
      dy += s.channels;
    }
  }
  HWY_UNROLL(28) for (size_t i = 0; i < kVectors * kNumbers; ++i) {
    hn::StoreU(sums[i], d, place(i));
  }
}

template <size_t kVectors>
void ForwardVectors(const Windows& s, ForwardPart part) {
  constexpr size_t kColumns = kSums / kVectors;
  const int64_t rows_at_a_time = std::max<int64_t>(
      1,
      kFirstLevelFloats / (s.width * static_cast<int64_t>(kVectors) * Lanes()));
  ForTiles(s.height, rows_at_a_time, [&](int64_t u, int64_t num_u) {
    part.u = u;
    part.num_u = num_u;
    for (int64_t row = 0; row < s.down; ++row) {
      ForConstantTiles<kColumns>(
          s.across, [&](auto size, int64_t column) HWY_ATTR {
            ForwardTile<kVectors, size()>(part, row, column);
          });
    }
  });
}

template <size_t kVectors>
void GradientVectors(const Windows& s, GradientPart part) {
  constexpr size_t kNumbers = kSums / kVectors;
  const int64_t rows_at_a_time =
      std::max<int64_t>(1, kFirstLevelFloats / s.plain_row_size());
  ForTiles(s.down, rows_at_a_time, [&](int64_t first, int64_t num_rows) {
    part.first = first;
    part.last = first + num_rows;
    for (part.u = 0; part.u < s.height; ++part.u) {
      ForConstantTiles<kNumbers>(s.width, [&](auto size, int64_t k) HWY_ATTR {
        GradientTile<kVectors, size()>(part, k);
      });
    }
  });
}

// Calls run(first channel, vectors, channels of the last vector, weights
// before) for all channels, two vectors at a time.
template <typename Run>
void ForChannels(const Windows& s, const Run& run) {
  const int64_t lanes = Lanes();
  for (int64_t first = 0; first < s.channels; first += 2 * lanes) {
    const int64_t rest = std::min(s.channels - first, 2 * lanes);
    const bool is_one = rest <= lanes;
    run(Channels{.first = first,
                 .in_last = static_cast<size_t>(is_one ? rest : rest - lanes)},
        is_one, first * s.height * s.width);
  }
}

void Convolve(const Windows& s, const float* image, const float* w,
              const float* bias, float* y) {
  ForChannels(s, [&](Channels channels, bool is_one, int64_t weights) {
    const ForwardPart part{
        .s = s,
        .channels = channels,
        .u = 0,
        .num_u = 0,
        .image = image,
        .row_size = s.blocked_row_size(),
        .block_distance = s.num_steps() * Windows::kBlock,
        .w = w + weights,
        .bias = bias == nullptr ? nullptr : bias + channels.first,
        .y = y};
    if (is_one) {
      ForwardVectors<1>(s, part);
    } else {
      ForwardVectors<2>(s, part);
    }
  });
}

void AddGradient(const Windows& s, const float* image, const float* dy,
                 float* dw) {
  ForChannels(s, [&](Channels channels, bool is_one, int64_t weights) {
    const GradientPart part{.s = s,
                            .channels = channels,
                            .first = 0,
                            .last = 0,
                            .u = 0,
                            .image = image,
                            .row_size = s.plain_row_size(),
                            .dy = dy,
                            .dw = dw + weights};
    if (is_one) {
      GradientVectors<1>(s, part);
    } else {
      GradientVectors<2>(s, part);
    }
  });
}

}  // namespace replicant::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace replicant::kernels::cpu {

HWY_EXPORT(Lanes);
HWY_EXPORT(ToRow);
HWY_EXPORT(ToBlocks);
HWY_EXPORT(Convolve);
HWY_EXPORT(AddGradient);

int64_t WindowLanes() { return HWY_DYNAMIC_DISPATCH(Lanes)(); }

void PixelsToRow(const uint8_t* x, int64_t n, float scale, float offset,
                 float* out) {
  HWY_DYNAMIC_DISPATCH(ToRow)(x, n, scale, offset, out);
}

void PixelsToBlocks(const Windows& windows, const uint8_t* x, float scale,
                    float offset, float* out) {
  HWY_DYNAMIC_DISPATCH(ToBlocks)(windows, x, scale, offset, out);
}

void ConvolveWindows(const Windows& windows, const float* image, const float* w,
                     const float* bias, float* y) {
  HWY_DYNAMIC_DISPATCH(Convolve)(windows, image, w, bias, y);
}

void AddWindowGradient(const Windows& windows, const float* image,
                       const float* dy, float* dw) {
  HWY_DYNAMIC_DISPATCH(AddGradient)(windows, image, dy, dw);
}

}  // namespace replicant::kernels::cpu
#endif  // HWY_ONCE
