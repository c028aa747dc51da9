#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/tensor/dtype.h"
#include "base/tensor/reduce_op.h"

// The arithmetic of collectives, shared by all transports.
namespace replicant::comm {

// out[i] = op over j of inputs[j][i], from j = 0 on, for i in [begin, end),
// into every one of `outputs`. An output may be one of the inputs. bf16 is
// computed in f32 and rounded once; whole numbers wrap around. A NaN stays one
// in sums and products; min and max may lose it. `dtype` is not bool and `op`
// is not kMean (checked): a mean is kSum with a factor. With a factor the
// result is rounded, and then multiplied as by Scale().
void Reduce(ReduceOp op, DType dtype, std::span<const std::byte* const> inputs,
            std::span<std::byte* const> outputs, size_t begin, size_t end,
            double factor = 1.0);

// The same for bf16 inputs that come in several portions: out[i] = `carry`[i]
// combined with all inputs[j][i], for i < count, in f32. `carry`, the result of
// the portions before, is null for the first one, and may be `out`. Narrowed
// after the last one, it has the bits of Reduce().
void ReduceOn(ReduceOp op, const float* carry,
              std::span<const std::byte* const> inputs, float* out,
              size_t count);

// out[i] = in[i] * factor for floating dtypes (checked); `out` may be `in`.
void Scale(DType dtype, double factor, const std::byte* in, std::byte* out,
           size_t count);

// Rounds f32 to bf16, to nearest, and converts back. The factor is applied to
// the f32.
void Narrow(const float* in, BFloat16* out, size_t count);
void Widen(const BFloat16* in, float factor, float* out, size_t count);

// A range of elements.
struct Range {
  size_t size() const { return end - begin; }

  size_t begin = 0;
  size_t end = 0;
};

// Part `index` of `count` elements in `parts`: contiguous, of sizes as equal as
// multiples of `granularity` allow.
Range PartOf(size_t count, size_t parts, size_t index, size_t granularity);

}  // namespace replicant::comm
