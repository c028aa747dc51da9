#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "engine/kernels/backend.h"
#include "engine/kernels/cpu/cpu_kernels.h"
#include "engine/kernels/cpu/primitive.h"
#include "engine/kernels/cpu/window_loops.h"
#include "engine/kernels/cpu/window_winograd.h"

// The operands of a first layer in the layouts of the loops that compute it
// (window_loops.h).
namespace replicant::kernels::cpu {

// The windows of a convolution of images x with weights w and result y, and its
// "stride".
Windows WindowsOf(const graph::Attributes& attributes, const Shape& x,
                  const Shape& w, const Shape& y);

// The images of a batch of pixels [B, H, W, C]: shifted, scaled, padded.
//
// Thread-safety: after Bind(), Make...() may be called concurrently.
class PixelImages {
 public:
  // `request`: of PixelConv2d or PixelConv2dWeightGradient. `dtype`: bf16
  // rounds the numbers of an image to it, however they are stored.
  PixelImages(const CpuRequest& request, const Windows& windows, DType dtype);

  // The scratch memory of Make...(): the pixels of two rows.
  size_t rows_size_bytes() const {
    return 2 * static_cast<size_t>(row_size_bytes_);
  }
  void Bind(const KernelBindings& bindings);

  // Makes image n as rows by blocks, or as plain rows.
  void MakeBlocks(int64_t n, uint8_t* rows, float* image) const;
  void MakePlain(int64_t n, uint8_t* rows, float* image) const;

  // Loads image n, which is not padded, as pixels for TransformCells().
  size_t pixels_size_bytes() const {
    return static_cast<size_t>(windows_.num_rows() * row_size_bytes_);
  }
  PixelRows LoadPixels(int64_t n, uint8_t* pixels) const;

  // The same for the loops of bf16 (MultipliesBF16()). A plain row has the
  // numbers of images n and m side by side.
  void MakeBlocks(int64_t n, uint8_t* rows, BFloat16* image) const;
  void MakePairs(int64_t n, int64_t m, uint8_t* rows, BF16Pair* images) const;

 private:
  // Makes every row of an image: convert(to) makes the numbers of row i, after
  // load(i); place(k) is where number k of a row goes.
  template <typename Number, typename Load, typename Convert, typename Place>
  void Make(int64_t row_size, Number* image, const Load& load,
            const Convert& convert, const Place& place) const;
  // Copies row i of image n, shifted, to where the padding of `row` ends.
  void LoadRow(int64_t n, int64_t i, uint8_t* row) const;
  void Round(float* row, int64_t row_size) const;

  Windows windows_;
  int64_t height_, width_, channels_;
  int64_t padding_;
  // pixels of one row, and as many more as the loops read
  int64_t row_size_bytes_;
  float scale_;
  float offset_;
  bool is_shifted_;
  bool is_rounded_;
  const uint8_t* pixels_ = nullptr;
  const int32_t* offsets_ = nullptr;
};

// Weights [O, C, KH, KW] in the order of the loops: vectors of channels.
// Elements beyond the last channel are 0.
class WindowWeights {
 public:
  WindowWeights(const Windows& windows, const Shape& w, int64_t lanes);

  int64_t num_vectors() const { return num_vectors_; }
  int64_t num_channels() const { return num_vectors_ * lanes_; }
  int64_t size() const { return num_channels() * c_ * kh_ * kw_; }

  // T: float or BFloat16.
  template <typename T>
  void Pack(const T* w, float* packed) const;
  void Unpack(const float* packed, float* w) const;

  // For the loops of bf16, of num_pairs() pairs. The last number of a piece of
  // odd size is paired with 0.
  int64_t num_pairs() const {
    return num_channels() * kh_ * windows_.pairs_per_run();
  }
  void PackPairs(const BFloat16* w, BF16Pair* packed) const;

 private:
  // Index of element k of a window's row u among a channel's weights.
  int64_t At(int64_t u, int64_t k) const {
    return (k % c_ * kh_ + u) * kw_ + k / c_;
  }

  Windows windows_;
  int64_t o_, c_, kh_, kw_;
  int64_t lanes_;
  int64_t num_vectors_;
};

// Scratch memory of each thread, in parts.
class ThreadScratch {
 public:
  // Adds the memory of all threads to `scratch`.
  ThreadScratch(int num_threads, std::initializer_list<size_t> sizes_bytes,
                ScratchLayout* scratch);

  int num_threads() const { return num_threads_; }
  void Bind(std::byte* scratch) { base_ = scratch + offset_; }
  template <typename T>
  T* part(int thread, size_t number) const {
    return reinterpret_cast<T*>(
        base_ + static_cast<size_t>(thread) * size_bytes_ + parts_[number]);
  }

 private:
  int num_threads_;
  std::vector<size_t> parts_;  // offsets
  size_t size_bytes_ = 0;
  size_t offset_ = 0;
  std::byte* base_ = nullptr;
};

}  // namespace replicant::kernels::cpu
