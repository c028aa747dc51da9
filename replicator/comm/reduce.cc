#include "replicator/comm/reduce.h"

#include <algorithm>
#include <type_traits>

#include "base/check.h"
#include "base/instruction_sets.h"
#include "base/tensor/bfloat16.h"

// Compiled once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "replicator/comm/reduce.cc"
// clang-format off: foreach_target.h comes before what it is to repeat
#include <hwy/foreach_target.h>
// clang-format on
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace replicant::comm::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Inputs = std::span<const std::byte* const>;
using Outputs = std::span<std::byte* const>;

template <ReduceOp kOp, typename V>
HWY_INLINE V Combine(V a, V b) {
  if constexpr (kOp == ReduceOp::kSum) return hn::Add(a, b);
  if constexpr (kOp == ReduceOp::kMin) return hn::Min(a, b);
  if constexpr (kOp == ReduceOp::kMax) return hn::Max(a, b);
  if constexpr (kOp == ReduceOp::kProd) return hn::Mul(a, b);
}

template <typename T>
const T* At(const std::byte* memory, size_t i) {
  return reinterpret_cast<const T*>(memory) + i;
}
template <typename T>
T* At(std::byte* memory, size_t i) {
  return reinterpret_cast<T*>(memory) + i;
}

// Combines lanes [i, i + kVectors * lanes) of all inputs in registers, and
// stores them to all outputs.
template <ReduceOp kOp, size_t kVectors, class D, typename T = hn::TFromD<D>>
HWY_INLINE void ReduceVectors(D d, Inputs inputs, Outputs outputs, size_t i) {
  const size_t lanes = hn::Lanes(d);
  hn::Vec<D> sum[kVectors];
  for (size_t v = 0; v < kVectors; ++v) {
    sum[v] = hn::LoadU(d, At<T>(inputs[0], i + v * lanes));
  }
  for (size_t j = 1; j < inputs.size(); ++j) {
    for (size_t v = 0; v < kVectors; ++v) {
      sum[v] =
          Combine<kOp>(sum[v], hn::LoadU(d, At<T>(inputs[j], i + v * lanes)));
    }
  }
  for (std::byte* const output : outputs) {
    for (size_t v = 0; v < kVectors; ++v) {
      hn::StoreU(sum[v], d, At<T>(output, i + v * lanes));
    }
  }
}

template <ReduceOp kOp, typename T>
void ReduceOf(Inputs inputs, Outputs outputs, size_t begin, size_t end) {
  const hn::ScalableTag<T> d;
  const hn::CappedTag<T, 1> one;
  constexpr size_t kVectors = 4;
  const size_t block = kVectors * hn::Lanes(d);
  size_t i = begin;
  for (; i + block <= end; i += block) {
    ReduceVectors<kOp, kVectors>(d, inputs, outputs, i);
  }
  for (; i < end; ++i) ReduceVectors<kOp, 1>(one, inputs, outputs, i);
}

template <typename T>
void ReduceBy(ReduceOp op, Inputs inputs, Outputs outputs, size_t begin,
              size_t end) {
  switch (op) {
    case ReduceOp::kSum:
      return ReduceOf<ReduceOp::kSum, T>(inputs, outputs, begin, end);
    case ReduceOp::kMean:
      break;  // refused by Reduce()
    case ReduceOp::kMin:
      return ReduceOf<ReduceOp::kMin, T>(inputs, outputs, begin, end);
    case ReduceOp::kMax:
      return ReduceOf<ReduceOp::kMax, T>(inputs, outputs, begin, end);
    case ReduceOp::kProd:
      return ReduceOf<ReduceOp::kProd, T>(inputs, outputs, begin, end);
  }
}

void ReduceF32(ReduceOp op, Inputs inputs, Outputs outputs, size_t begin,
               size_t end) {
  ReduceBy<float>(op, inputs, outputs, begin, end);
}
void ReduceF64(ReduceOp op, Inputs inputs, Outputs outputs, size_t begin,
               size_t end) {
  ReduceBy<double>(op, inputs, outputs, begin, end);
}
void ReduceI32(ReduceOp op, Inputs inputs, Outputs outputs, size_t begin,
               size_t end) {
  ReduceBy<int32_t>(op, inputs, outputs, begin, end);
}

template <typename T>
void ScaleOf(T factor, const T* in, T* out, size_t count) {
  const hn::ScalableTag<T> d;
  const auto factors = hn::Set(d, factor);
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, in + i), factors), d, out + i);
  }
  for (; i < count; ++i) out[i] = in[i] * factor;
}

void ScaleF32(float factor, const float* in, float* out, size_t count) {
  ScaleOf(factor, in, out, count);
}
void ScaleF64(double factor, const double* in, double* out, size_t count) {
  ScaleOf(factor, in, out, count);
}

}  // namespace replicant::comm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace replicant::comm {
namespace {

HWY_EXPORT(ReduceF32);
HWY_EXPORT(ReduceF64);
HWY_EXPORT(ReduceI32);
HWY_EXPORT(ScaleF32);
HWY_EXPORT(ScaleF64);

// The type in which elements of T are computed.
template <typename T>
struct ComputeTypeOf {
  using Type = T;
};
template <>
struct ComputeTypeOf<BFloat16> {
  using Type = float;
};
// unsigned, whose overflow is defined
template <>
struct ComputeTypeOf<int64_t> {
  using Type = uint64_t;
};

// Plain loops over blocks, for types without vector instructions.
template <typename T, typename Combine>
void ReducePlainly(std::span<const std::byte* const> inputs,
                   std::span<std::byte* const> outputs, size_t begin,
                   size_t end, Combine combine) {
  using C = typename ComputeTypeOf<T>::Type;
  constexpr size_t kBlock = 256;
  C sum[kBlock];
  for (size_t i = begin; i < end; i += kBlock) {
    const size_t n = std::min(kBlock, end - i);
    for (size_t j = 0; j < inputs.size(); ++j) {
      const T* x = reinterpret_cast<const T*>(inputs[j]) + i;
      for (size_t k = 0; k < n; ++k) {
        const C value = static_cast<C>(x[k]);
        sum[k] = j == 0 ? value : static_cast<C>(combine(sum[k], value));
      }
    }
    for (std::byte* const output : outputs) {
      T* y = reinterpret_cast<T*>(output) + i;
      for (size_t k = 0; k < n; ++k) y[k] = static_cast<T>(sum[k]);
    }
  }
}

template <typename T>
void ReducePlainly(ReduceOp op, std::span<const std::byte* const> inputs,
                   std::span<std::byte* const> outputs, size_t begin,
                   size_t end) {
  // min and max compare as T: as unsigned, a negative i64 would be large
  const auto less = [](auto a, auto b) {
    if constexpr (std::is_same_v<T, int64_t>) {
      return static_cast<int64_t>(a) < static_cast<int64_t>(b);
    } else {
      return a < b;
    }
  };
  switch (op) {
    case ReduceOp::kSum:
      return ReducePlainly<T>(inputs, outputs, begin, end,
                              [](auto a, auto b) { return a + b; });
    case ReduceOp::kMean:
      break;  // refused by Reduce()
    case ReduceOp::kMin:
      return ReducePlainly<T>(
          inputs, outputs, begin, end,
          [less](auto a, auto b) { return less(b, a) ? b : a; });
    case ReduceOp::kMax:
      return ReducePlainly<T>(
          inputs, outputs, begin, end,
          [less](auto a, auto b) { return less(a, b) ? b : a; });
    case ReduceOp::kProd:
      return ReducePlainly<T>(inputs, outputs, begin, end,
                              [](auto a, auto b) { return a * b; });
  }
}

void ReduceRange(ReduceOp op, DType dtype,
                 std::span<const std::byte* const> inputs,
                 std::span<std::byte* const> outputs, size_t begin,
                 size_t end) {
  switch (dtype) {
    case DType::kF32:
      return HWY_DYNAMIC_DISPATCH(ReduceF32)(op, inputs, outputs, begin, end);
    case DType::kF64:
      return HWY_DYNAMIC_DISPATCH(ReduceF64)(op, inputs, outputs, begin, end);
    case DType::kI32:
      return HWY_DYNAMIC_DISPATCH(ReduceI32)(op, inputs, outputs, begin, end);
    case DType::kBF16:
      return ReducePlainly<BFloat16>(op, inputs, outputs, begin, end);
    case DType::kI64:
      return ReducePlainly<int64_t>(op, inputs, outputs, begin, end);
    case DType::kU8:
      return ReducePlainly<uint8_t>(op, inputs, outputs, begin, end);
    case DType::kBool:
      break;
  }
  REPLICANT_CHECK(false, "{} cannot be reduced", DTypeName(dtype));
}

}  // namespace

void Reduce(ReduceOp op, DType dtype, std::span<const std::byte* const> inputs,
            std::span<std::byte* const> outputs, size_t begin, size_t end,
            double factor) {
  REPLICANT_CHECK(op != ReduceOp::kMean, "a mean is kSum with a factor");
  if (factor == 1.0) {
    ReduceRange(op, dtype, inputs, outputs, begin, end);
    return;
  }
  // scale while it is in the cache
  constexpr size_t kBlock = 4096;
  for (size_t i = begin; i < end; i += kBlock) {
    const size_t n = std::min(kBlock, end - i);
    ReduceRange(op, dtype, inputs, outputs, i, i + n);
    for (std::byte* const output : outputs) {
      std::byte* at = output + i * DTypeSize(dtype);
      Scale(dtype, factor, at, at, n);
    }
  }
}

void ReduceOn(ReduceOp op, const float* carry,
              std::span<const std::byte* const> inputs, float* out,
              size_t count) {
  // an input at a time, while the block is in the cache
  constexpr size_t kBlock = 2048;
  float wide[kBlock];
  for (size_t i = 0; i < count; i += kBlock) {
    const size_t n = std::min(kBlock, count - i);
    auto* const sum = reinterpret_cast<std::byte*>(out + i);
    for (size_t j = 0; j < inputs.size(); ++j) {
      const auto* x = reinterpret_cast<const BFloat16*>(inputs[j]) + i;
      if (j == 0 && carry == nullptr) {
        Widen(x, 1.0F, out + i, n);
        continue;
      }
      Widen(x, 1.0F, wide, n);
      const std::byte* const terms[] = {
          j == 0 ? reinterpret_cast<const std::byte*>(carry + i) : sum,
          reinterpret_cast<const std::byte*>(wide)};
      std::byte* const outputs[] = {sum};
      Reduce(op, DType::kF32, terms, outputs, 0, n);
    }
  }
}

void Scale(DType dtype, double factor, const std::byte* in, std::byte* out,
           size_t count) {
  switch (dtype) {
    case DType::kF32:
      return HWY_DYNAMIC_DISPATCH(ScaleF32)(
          static_cast<float>(factor), reinterpret_cast<const float*>(in),
          reinterpret_cast<float*>(out), count);
    case DType::kF64:
      return HWY_DYNAMIC_DISPATCH(ScaleF64)(
          factor, reinterpret_cast<const double*>(in),
          reinterpret_cast<double*>(out), count);
    case DType::kBF16: {
      const auto* x = reinterpret_cast<const BFloat16*>(in);
      auto* y = reinterpret_cast<BFloat16*>(out);
      for (size_t i = 0; i < count; ++i) {
        y[i] = BFloat16(static_cast<float>(x[i]) * static_cast<float>(factor));
      }
      return;
    }
    default:
      REPLICANT_CHECK(false, "{} cannot be scaled", DTypeName(dtype));
  }
}

void Narrow(const float* in, BFloat16* out, size_t count) {
  for (size_t i = 0; i < count; ++i) out[i] = BFloat16(in[i]);
}

void Widen(const BFloat16* in, float factor, float* out, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    out[i] = static_cast<float>(in[i]) * factor;
  }
}

Range PartOf(size_t count, size_t parts, size_t index, size_t granularity) {
  const size_t units = (count + granularity - 1) / granularity;
  const auto edge = [&](size_t i) {
    return std::min(count, units * i / parts * granularity);
  };
  return {edge(index), edge(index + 1)};
}

}  // namespace replicant::comm
#endif  // HWY_ONCE
