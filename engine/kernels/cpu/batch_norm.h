#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/parallel.h"
#include "engine/kernels/cpu/cpu_kernels.h"
#include "engine/kernels/cpu/stored.h"

// Batch norm with the relu and the residual that follow it. Its cost is moving
// memory, so each tensor is read as seldom as possible: once for the statistics
// or sums, once for the result.
namespace replicant::kernels::cpu {

// Rows of one group, and who reads them: a part of the loop over all blocks, on
// a thread.
struct NormBlock {
  int thread;
  int64_t part, group, row, num_rows;
};

// x as examples of rows of channels, walked in blocks of rows that stay in the
// cache. gamma and beta have one row for all examples, or one for each.
struct BatchNormShape {
  BatchNormShape(const CpuRequest& request, const graph::TensorType& x,
                 const Shape& gamma)
      : dtype(x.dtype),
        channels(x.shape[x.shape.rank() - 1]),
        rows(x.shape.num_elements() / channels),
        groups(gamma.rank() == 2 ? gamma[0] : 1),
        group_rows(rows / groups),
        block_rows(std::clamp<int64_t>(kBlockSize / channels, 16, 128)),
        group_blocks((group_rows + block_rows - 1) / block_rows),
        epsilon(
            HasAttributes(request)
                ? static_cast<float>(request.node.attributes.Float("epsilon"))
                : 0.0f),
        has_relu(HasAttributes(request) &&
                 request.node.attributes.Bool("relu")),
        num_threads(
            ThreadsFor(request.num_threads, 4 * x.shape.num_elements())) {}

  // Elements of a block, unless its minimum number of rows needs more.
  static constexpr int64_t kBlockSize = 8192;

  // Calls run(NormBlock) for all blocks. A part goes through its blocks
  // forwards, or backwards: the blocks that one pass reads last may still be in
  // the cache when the next pass begins.
  template <typename Run>
  void ForBlocks(bool is_reversed, const Run& run) const {
    ParallelForParts(
        num_threads, groups * group_blocks,
        [&](int thread, int64_t part, int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const int64_t block = is_reversed ? begin + end - 1 - i : i;
            const int64_t group = block / group_blocks;
            const int64_t first = block % group_blocks * block_rows;
            run(NormBlock{
                .thread = thread,
                .part = part,
                .group = group,
                .row = group * group_rows + first,
                .num_rows = std::min(block_rows, group_rows - first)});
          }
        });
  }
  int64_t num_parts() const {
    return NumParts(num_threads, groups * group_blocks);
  }
  int64_t PartOf(int64_t block) const {
    return replicant::PartOf(num_threads, groups * group_blocks, block);
  }

  // the moments are an input
  static bool HasAttributes(const CpuRequest& request) {
    return request.node.attributes.Has("epsilon");
  }

  DType dtype;
  int64_t channels, rows, groups, group_rows, block_rows, group_blocks;
  float epsilon;
  bool has_relu;
  int num_threads;
};

// Blocks as floats, num_blocks for each thread.
inline RunScratch BlockScratch(const BatchNormShape& s,
                               std::size_t num_blocks) {
  return {s.dtype, s.num_threads, num_blocks, s.block_rows * s.channels};
}

// of batch_norm_gradient.cc
std::unique_ptr<Kernel> MakeBatchNormGradient(const CpuRequest& request);
std::unique_ptr<Kernel> MakeBatchNormApplyGradient(const CpuRequest& request);

}  // namespace replicant::kernels::cpu
