#pragma once

#include <cstdint>

// The inner loops of Resizer, for the processor's instruction set. Each output
// is summed tap by tap in f32 without fused operations, so that every processor
// gives the same bytes.
namespace replicant::data::internal {

// sums[k] = sum over j in [0, num_taps) of weights[j] * rows[j * stride + k],
// for k in [0, length).
void SumRows(const uint8_t* rows, int64_t stride, const float* weights,
             int64_t num_taps, int64_t length, float* sums);

// Output x has ends[x + 1] - ends[x] taps: the weights from ends[x] on, times
// the pixels of `row`, f32 [width, 3], from firsts[x] - origin on. Writes
// num_pixels * 3 rounded bytes. `row` and `rgb` are longer by one element than
// their pixels: the last four lanes reach there.
struct RowFilter {
  const int64_t* firsts;
  const int64_t* ends;
  const float* weights;
  int64_t origin;
};
void SumPixels(const float* row, const RowFilter& filter, int64_t num_pixels,
               uint8_t* rgb);

}  // namespace replicant::data::internal
