#include <hwy/base.h>

#include <algorithm>
#include <cstring>

#include "engine/kernels/cpu/window_loops.h"

// g++ 12 mistakes the header's undefined vectors for a bug (its bug 105593)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

// The loops of window_loops.cc for bf16, tile by tile as there.
//
// The instruction takes two products at a time from each 32 bits of a vector.
// Forward, these are two adjacent numbers of a window's run, with the weights
// of both. In the gradient of the weights a number of the window meets one of
// dy, and the sum goes over windows: there, two images are computed at once,
// and a pair holds the same number of both.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512bf16")

namespace replicant::kernels::cpu {
namespace {

static_assert(sizeof(BF16Pair) == sizeof(int32_t));

// Registers for sums: all of the processor's except the ones for operands.
constexpr size_t kSums = 28;
// Pairs of the weights or the images that should stay in the first-level cache
// while they are used again.
constexpr int64_t kFirstLevelPairs = 5 * 1024;

HWY_INLINE __m512bh LoadPairs(const BF16Pair* pairs) {
  return reinterpret_cast<__m512bh>(_mm512_loadu_si512(pairs));
}

// The pair in all lanes. The two numbers lie side by side.
HWY_INLINE __m512bh Repeat(const void* pair) {
  int32_t bits;
  std::memcpy(&bits, pair, sizeof(bits));
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(bits));
}

// 16 pixels as floats.
HWY_INLINE __m512 ToNumbers(const uint8_t* x, __m512 scale, __m512 offset) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x));
  const __m512 floats = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
  return _mm512_fmadd_ps(scale, floats, offset);
}

// 16 pairs, of the numbers of two vectors.
HWY_INLINE __m512i ToPairs(__m512 first, __m512 second) {
  // half words 0 .. 15 come from `first`, the others from `second`
  const __m512i halves =
      reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
  const __m512i order = _mm512_set_epi16(
      31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8,  //
      23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(order, halves);
}

// Rows of all windows from `u` on.
struct ForwardPart {
  const Windows& s;
  int64_t first;      // channel
  __mmask16 in_last;  // channels of the last vector
  int64_t u, num_u;
  const BFloat16* image;
  int64_t row_size;        // numbers of a row of the image
  int64_t block_distance;  // numbers from a block of a step to the next
  const BF16Pair* w;       // of the first vector
  int64_t pairs_per_run;
  const float* bias;  // of the first vector
  float* y;
};

// Adds the rows to the results of kColumns adjacent windows of a row.
template <size_t kVectors, size_t kColumns>
HWY_NOINLINE void ForwardTile(const ForwardPart& part, int64_t row,
                              int64_t column) {
  const Windows& s = part.s;
  const int64_t channels = s.channels;
  float* y = part.y + (row * s.across + column) * channels + part.first;
  const auto mask = [&](size_t v) {
    return v + 1 < kVectors ? static_cast<__mmask16>(0xFFFF) : part.in_last;
  };
  __m512 sums[kVectors * kColumns];
  HWY_UNROLL(28) for (size_t i = 0; i < kVectors * kColumns; ++i) {
    const size_t v = i % kVectors;
    const auto t = static_cast<int64_t>(i / kVectors);
    const auto lane = static_cast<int64_t>(v) * kPairLanes;
    sums[i] = part.u == 0
                  ? _mm512_loadu_ps(part.bias + lane)
                  : _mm512_maskz_loadu_ps(mask(v), y + t * channels + lane);
  }
  const BF16Pair* w[kVectors];
  for (size_t v = 0; v < kVectors; ++v) {
    w[v] = part.w + (static_cast<int64_t>(v) * s.height + part.u) *
                        part.pairs_per_run * kPairLanes;
  }
  const BFloat16* image = part.image +
                          (row * s.step_down + part.u) * part.row_size +
                          column * Windows::kBlock;
  for (int64_t u = 0; u < part.num_u; ++u, image += part.row_size) {
    // the run in pieces: steps, and blocks of a step
    const BFloat16* of_step = image;
    for (int64_t begin = 0; begin < s.width; begin += s.step) {
      const int64_t end = std::min(s.step, s.width - begin);
      const BFloat16* x = of_step;
      for (int64_t k = 0; k < end; k += Windows::kBlock) {
        const int64_t n = std::min(Windows::kBlock, end - k);
        for (int64_t i = 0; i < n; i += 2) {
          __m512bh weights[kVectors];
          HWY_UNROLL(2) for (size_t v = 0; v < kVectors; ++v) {
            weights[v] = LoadPairs(w[v]);
            w[v] += kPairLanes;
          }
          HWY_UNROLL(28) for (size_t t = 0; t < kColumns; ++t) {
            const __m512bh pair =
                Repeat(x + static_cast<int64_t>(t) * Windows::kBlock + i);
            HWY_UNROLL(2) for (size_t v = 0; v < kVectors; ++v) {
              __m512& sum = sums[t * kVectors + v];
              sum = _mm512_dpbf16_ps(sum, weights[v], pair);
            }
          }
        }
        x += part.block_distance;
      }
      of_step += Windows::kBlock;
    }
  }
  HWY_UNROLL(28) for (size_t i = 0; i < kVectors * kColumns; ++i) {
    const size_t v = i % kVectors;
    const auto t = static_cast<int64_t>(i / kVectors);
    _mm512_mask_storeu_ps(
        y + t * channels + static_cast<int64_t>(v) * kPairLanes, mask(v),
        sums[i]);
  }
}

// Some rows of windows, and row `u` of each.
struct GradientPart {
  const Windows& s;
  int64_t first, last;  // rows of windows
  int64_t u;
  const BF16Pair* images;
  int64_t row_size;      // pairs of a row of the images
  const BF16Pair* dy;    // of the first vector
  int64_t num_channels;  // pairs of dy of a window
  float* dw;             // of the first vector
};

// Adds the rows to the gradients of kNumbers weights of a run, from `k` on.
template <size_t kVectors, size_t kNumbers>
HWY_NOINLINE void GradientTile(const GradientPart& part, int64_t k) {
  const Windows& s = part.s;
  float* places[kVectors];
  for (size_t v = 0; v < kVectors; ++v) {
    const auto row = static_cast<int64_t>(v) * s.height + part.u;
    places[v] = part.dw + (row * s.width + k) * kPairLanes;
  }
  __m512 sums[kVectors * kNumbers];
  HWY_UNROLL(28) for (size_t i = 0; i < kVectors * kNumbers; ++i) {
    const auto number = static_cast<int64_t>(i / kVectors);
    sums[i] = _mm512_loadu_ps(places[i % kVectors] + number * kPairLanes);
  }
  const BF16Pair* dy = part.dy + part.first * s.across * part.num_channels;
  const int64_t distance = s.step_down * part.row_size;
  const BF16Pair* first =
      part.images + part.first * distance + part.u * part.row_size + k;
  for (int64_t row = part.first; row < part.last; ++row, first += distance) {
    const BF16Pair* x = first;
    for (int64_t column = 0; column < s.across; ++column) {
      __m512bh gradients[kVectors];
      HWY_UNROLL(2) for (size_t v = 0; v < kVectors; ++v) {
        gradients[v] = LoadPairs(dy + static_cast<int64_t>(v) * kPairLanes);
      }
      HWY_UNROLL(28) for (size_t t = 0; t < kNumbers; ++t) {
        const __m512bh pair = Repeat(x + t);
        HWY_UNROLL(2) for (size_t v = 0; v < kVectors; ++v) {
          __m512& sum = sums[t * kVectors + v];
          sum = _mm512_dpbf16_ps(sum, gradients[v], pair);
        }
      }
      x += s.step;
      dy += part.num_channels;
    }
  }
  HWY_UNROLL(28) for (size_t i = 0; i < kVectors * kNumbers; ++i) {
    const auto number = static_cast<int64_t>(i / kVectors);
    _mm512_storeu_ps(places[i % kVectors] + number * kPairLanes, sums[i]);
  }
}

template <size_t kVectors>
void ForwardVectors(const Windows& s, ForwardPart part) {
  constexpr size_t kColumns = kSums / kVectors;
  constexpr int64_t kFirstLevelRuns =
      kFirstLevelPairs / (static_cast<int64_t>(kVectors) * kPairLanes);
  const int64_t rows_at_a_time = std::max<int64_t>(
      1, kFirstLevelRuns / std::max<int64_t>(1, part.pairs_per_run));
  ForTiles(s.height, rows_at_a_time, [&](int64_t u, int64_t num_u) {
    part.u = u;
    part.num_u = num_u;
    for (int64_t row = 0; row < s.down; ++row) {
      ForConstantTiles<kColumns>(s.across, [&](auto size, int64_t column) {
        ForwardTile<kVectors, size()>(part, row, column);
      });
    }
  });
}

template <size_t kVectors>
void GradientVectors(const Windows& s, GradientPart part) {
  constexpr size_t kNumbers = kSums / kVectors;
  const int64_t rows_at_a_time =
      std::max<int64_t>(1, kFirstLevelPairs / s.plain_row_size());
  ForTiles(s.down, rows_at_a_time, [&](int64_t first, int64_t num_rows) {
    part.first = first;
    part.last = first + num_rows;
    for (part.u = 0; part.u < s.height; ++part.u) {
      ForConstantTiles<kNumbers>(s.width, [&](auto size, int64_t k) {
        GradientTile<kVectors, size()>(part, k);
      });
    }
  });
}

}  // namespace

void PixelsToBlocksOfBF16(const Windows& s, const uint8_t* x, float scale,
                          float offset, BFloat16* out) {
  static_assert(Windows::kBlock == 16);
  const __m512 vscale = _mm512_set1_ps(scale);
  const __m512 voffset = _mm512_set1_ps(offset);
  const int64_t num_steps = s.num_steps();
  for (int64_t block = 0; block < s.step; block += Windows::kBlock) {
    const uint8_t* from = x + block;
    for (int64_t step = 0; step < num_steps; ++step, from += s.step) {
      const __m256bh numbers =
          _mm512_cvtneps_pbh(ToNumbers(from, vscale, voffset));
      std::memcpy(out, &numbers, sizeof(numbers));
      out += Windows::kBlock;
    }
  }
}

void PixelsToPairs(const uint8_t* x, const uint8_t* y, int64_t n, float scale,
                   float offset, BF16Pair* out) {
  const __m512 vscale = _mm512_set1_ps(scale);
  const __m512 voffset = _mm512_set1_ps(offset);
  const auto convert = [&](const uint8_t* from, const uint8_t* other) {
    return ToPairs(ToNumbers(from, vscale, voffset),
                   ToNumbers(other, vscale, voffset));
  };
  int64_t i = 0;
  for (; i + kPairLanes <= n; i += kPairLanes) {
    _mm512_storeu_si512(out + i, convert(x + i, y + i));
  }
  if (i == n) return;
  uint8_t rest[2][kPairLanes] = {};
  std::copy(x + i, x + n, rest[0]);
  std::copy(y + i, y + n, rest[1]);
  const auto mask = static_cast<__mmask16>((1u << (n - i)) - 1);
  _mm512_mask_storeu_epi32(out + i, mask, convert(rest[0], rest[1]));
}

void RowsToPairs(const BFloat16* x, const BFloat16* y, int64_t num_rows,
                 int64_t n, BF16Pair* out) {
  for (int64_t row = 0; row < num_rows; ++row) {
    for (int64_t i = 0; i < n; i += kPairLanes, out += kPairLanes) {
      const int64_t count = std::min(kPairLanes, n - i);
      const auto mask = static_cast<__mmask16>((1u << count) - 1);
      const auto load = [&](const BFloat16* from) {
        return _mm512_cvtepu16_epi32(
            _mm256_maskz_loadu_epi16(mask, from + row * n + i));
      };
      __m512i pairs = load(x);
      if (y != nullptr) {
        pairs = _mm512_or_si512(pairs, _mm512_slli_epi32(load(y), 16));
      }
      _mm512_storeu_si512(out, pairs);
    }
  }
}

void ConvolveWindowsOfBF16(const Windows& s, const BFloat16* image,
                           const BF16Pair* w, const float* bias, float* y) {
  const int64_t pairs_per_run = s.pairs_per_run();
  for (int64_t first = 0; first < s.channels; first += 2 * kPairLanes) {
    const int64_t rest = std::min(s.channels - first, 2 * kPairLanes);
    const bool is_one = rest <= kPairLanes;
    const int64_t in_last = is_one ? rest : rest - kPairLanes;
    const ForwardPart part{
        .s = s,
        .first = first,
        .in_last = static_cast<__mmask16>((1u << in_last) - 1),
        .u = 0,
        .num_u = 0,
        .image = image,
        .row_size = s.blocked_row_size(),
        .block_distance = s.num_steps() * Windows::kBlock,
        .w = w + first * s.height * pairs_per_run,
        .pairs_per_run = pairs_per_run,
        .bias = bias + first,
        .y = y};
    if (is_one) {
      ForwardVectors<1>(s, part);
    } else {
      ForwardVectors<2>(s, part);
    }
  }
}

void AddWindowGradientOfPairs(const Windows& s, const BF16Pair* images,
                              const BF16Pair* dy, float* dw) {
  const int64_t num_vectors = (s.channels + kPairLanes - 1) / kPairLanes;
  for (int64_t vector = 0; vector < num_vectors; vector += 2) {
    const int64_t first = vector * kPairLanes;
    const GradientPart part{.s = s,
                            .first = 0,
                            .last = 0,
                            .u = 0,
                            .images = images,
                            .row_size = s.plain_row_size(),
                            .dy = dy + first,
                            .num_channels = num_vectors * kPairLanes,
                            .dw = dw + first * s.height * s.width};
    if (vector + 1 == num_vectors) {
      GradientVectors<1>(s, part);
    } else {
      GradientVectors<2>(s, part);
    }
  }
}

}  // namespace replicant::kernels::cpu
HWY_POP_ATTRIBUTES
