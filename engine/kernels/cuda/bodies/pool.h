#pragma once

#include "engine/kernels/cuda/bodies/device.h"

// Pooling and upsampling of images [B, H, W, C] (graph/ops/pool.h). Gradients
// gather: each pixel of dx goes through the windows that hold it, so that no
// two threads add to one place.
namespace replicant::kernels::cuda {

// x [B, h, w, c] -> y [B, yh, yw, c]
struct PoolShape {
  // The part of window (row, column) inside the image.
  struct Window {
    int64_t top, bottom, left, right;
  };

  REPLICANT_DEVICE Window WindowOf(int64_t row, int64_t column) const {
    const int64_t top = row * stride - padding;
    const int64_t left = column * stride - padding;
    return {top < 0 ? 0 : top, top + window < h ? top + window : h,
            left < 0 ? 0 : left, left + window < w ? left + window : w};
  }
  REPLICANT_DEVICE int64_t XOffset(int64_t n, int64_t i, int64_t j,
                                   int64_t k) const {
    return ((n * h + i) * w + j) * c + k;
  }

  // Calls visit(row, column) for the windows that hold pixel (i, j).
  template <typename Visit>
  REPLICANT_DEVICE void ForWindowsOf(int64_t i, int64_t j,
                                     const Visit& visit) const {
    const int64_t first_row = FirstWindow(i);
    const int64_t first_column = FirstWindow(j);
    for (int64_t row = first_row; row < yh && row * stride - padding <= i;
         ++row) {
      for (int64_t column = first_column;
           column < yw && column * stride - padding <= j; ++column) {
        visit(row, column);
      }
    }
  }
  // The place of pixel (i, j) in window (row, column).
  REPLICANT_DEVICE uint16_t PlaceIn(int64_t row, int64_t column, int64_t i,
                                    int64_t j) const {
    return static_cast<uint16_t>((i + padding - row * stride) * window + j +
                                 padding - column * stride);
  }
  // The first window that ends after position i.
  REPLICANT_DEVICE int64_t FirstWindow(int64_t i) const {
    const int64_t before = i + padding - window + 1;
    return before <= 0 ? 0 : (before + stride - 1) / stride;
  }

  int64_t h, w, c, yh, yw, window, stride, padding;
};

// The largest elements of a window in kLanes neighbouring channels, and their
// places in it, those that the image's edge cuts off counted.
template <typename T, int kLanes>
struct WindowMax {
  // Of window (row, column) of image n, channels from k on, after
  // f(value, lane).
  template <typename Function>
  REPLICANT_DEVICE WindowMax(const T* x, const PoolShape& s, int64_t n,
                             int64_t row, int64_t column, int64_t k,
                             const Function& f) {
    const PoolShape::Window window = s.WindowOf(row, column);
    bool is_first = true;
    for (int64_t i = window.top; i < window.bottom; ++i) {
      for (int64_t j = window.left; j < window.right; ++j) {
        const auto pack = Pack<T, kLanes>::At(x, s.XOffset(n, i, j, k));
        const uint16_t at = s.PlaceIn(row, column, i, j);
        REPLICANT_UNROLL
        for (int lane = 0; lane < kLanes; ++lane) {
          const float other = f(pack.Get(lane), lane);
          // the first of equal ones; NaN wins
          if (!is_first && !(other > value[lane]) && other == other) continue;
          value[lane] = other;
          place[lane] = at;
        }
        is_first = false;
      }
    }
  }

  float value[kLanes] = {};
  uint16_t place[kLanes] = {};
};

// Element i of [B, yh, yw, c / kLanes].
template <typename T, int kLanes>
struct MaxPool {
  REPLICANT_DEVICE void operator()(int64_t i) const {
    const int64_t groups = s.c / kLanes;
    const int64_t pixel = i / groups;
    const WindowMax<T, kLanes> max(
        x, s, pixel / s.yw / s.yh, pixel / s.yw % s.yh, pixel % s.yw,
        i % groups * kLanes, [](float value, int /*lane*/) { return value; });
    if (y != nullptr) {
      Pack<T, kLanes> result;
      REPLICANT_UNROLL
      for (int lane = 0; lane < kLanes; ++lane) {
        result.Set(lane, max.value[lane]);
      }
      result.StoreAt(y, i * kLanes);
    }
    if (places != nullptr) {
      Pack<uint16_t, kLanes> result;
      REPLICANT_UNROLL
      for (int lane = 0; lane < kLanes; ++lane) {
        result.values[lane] = max.place[lane];
      }
      result.StoreAt(places, i * kLanes);
    }
  }

  const T* x;
  T* y;              // null: places only
  uint16_t* places;  // null: none
  PoolShape s;
};

// Element i of [B, h, w, c / kLanes], from the places of the maxima.
template <typename T, typename Place, int kLanes>
struct MaxPoolGradient {
  REPLICANT_DEVICE void operator()(int64_t i) const {
    const int64_t groups = s.c / kLanes;
    const int64_t pixel = i / groups;
    const int64_t n = pixel / s.w / s.h;
    const int64_t x_row = pixel / s.w % s.h;
    const int64_t x_column = pixel % s.w;
    float sum[kLanes] = {};
    s.ForWindowsOf(x_row, x_column, [&](int64_t row, int64_t column) {
      const int64_t at =
          ((n * s.yh + row) * s.yw + column) * s.c + i % groups * kLanes;
      const uint16_t own = s.PlaceIn(row, column, x_row, x_column);
      const auto place = Pack<Place, kLanes>::At(places, at);
      const auto gradient = Pack<T, kLanes>::At(dy, at);
      REPLICANT_UNROLL
      for (int lane = 0; lane < kLanes; ++lane) {
        if (place.values[lane] == own) sum[lane] += gradient.Get(lane);
      }
    });
    Pack<T, kLanes> result;
    REPLICANT_UNROLL
    for (int lane = 0; lane < kLanes; ++lane) result.Set(lane, sum[lane]);
    result.StoreAt(dx, i * kLanes);
  }

  const Place* places;
  const T* dy;
  T* dx;
  PoolShape s;
};

template <typename T>
struct AveragePool {
  REPLICANT_DEVICE void operator()(int64_t at) const {
    const int64_t n = at / s.c / s.yw / s.yh;
    const PoolShape::Window window =
        s.WindowOf(at / s.c / s.yw % s.yh, at / s.c % s.yw);
    float sum = 0.0F;
    for (int64_t i = window.top; i < window.bottom; ++i) {
      for (int64_t j = window.left; j < window.right; ++j) {
        sum += Load(x, s.XOffset(n, i, j, at % s.c));
      }
    }
    const int64_t count =
        (window.bottom - window.top) * (window.right - window.left);
    Store(y, at, sum / static_cast<float>(count));
  }

  const T* x;
  T* y;
  PoolShape s;
};

template <typename T>
struct AveragePoolGradient {
  REPLICANT_DEVICE void operator()(int64_t at) const {
    const int64_t k = at % s.c;
    const int64_t n = at / s.c / s.w / s.h;
    float sum = 0.0F;
    s.ForWindowsOf(
        at / s.c / s.w % s.h, at / s.c % s.w, [&](int64_t row, int64_t column) {
          const PoolShape::Window window = s.WindowOf(row, column);
          const int64_t count =
              (window.bottom - window.top) * (window.right - window.left);
          sum += Load(dy, ((n * s.yh + row) * s.yw + column) * s.c + k) /
                 static_cast<float>(count);
        });
    Store(dx, at, sum);
  }

  const T* dy;
  T* dx;
  PoolShape s;
};

// Element i of images [B, scale H, scale W, C].
template <typename Word>
struct Upsample {
  REPLICANT_DEVICE void operator()(int64_t i) const {
    const int64_t k = i % channels;
    const int64_t column = i / channels % (width * scale);
    const int64_t row = i / channels / (width * scale);  // of all images
    y[i] = x[(row / scale * width + column / scale) * channels + k];
  }

  const Word* x;
  Word* y;
  int64_t width, channels, scale;
};

}  // namespace replicant::kernels::cuda
