#include <algorithm>

#include "engine/kernels/cuda/cuda_kernels.h"

// Reductions. Neighbouring axes that are both reduced, or both kept, are
// merged. Most nodes then reduce the middle axis of [A, n, C]:
// - C = 1: a warp reduces a row. Few long rows are cut into parts first, whose
//   results lie in scratch and are reduced in turn.
// - C > 1: a thread goes down a part of a column; the parts are reduced in
// turn. The others reduce over axes that are not neighbours, one warp for each
// output.
namespace replicant::kernels::cuda {
namespace {

// Threads that keep a large device busy.
constexpr int64_t kWantedThreads = 1 << 16;
// Minimum elements of a part.
constexpr int64_t kMinPartSize = 32;

struct Axis {
  int64_t size;
  int64_t stride;
  bool is_reduced;
};

std::vector<Axis> MergedAxes(const Shape& shape,
                             const std::vector<int64_t>& reduced) {
  std::vector<Axis> axes;
  const Shape::Strides strides = shape.RowMajorStrides();
  for (int i = 0; i < shape.rank(); ++i) {
    const bool is_reduced =
        std::find(reduced.begin(), reduced.end(), i) != reduced.end();
    if (shape[i] == 1) continue;
    const int64_t stride = strides[static_cast<size_t>(i)];
    if (!axes.empty() && axes.back().is_reduced == is_reduced) {
      axes.back().size *= shape[i];
      axes.back().stride = stride;
    } else {
      axes.push_back({shape[i], stride, is_reduced});
    }
  }
  return axes;
}

// The middle axis of [outer, n, inner].
struct Middle {
  int64_t outer, n, inner;
};

// Whether the reduced axes are one; sets `*middle` if so.
bool IsMiddle(const std::vector<Axis>& axes, Middle* middle) {
  *middle = {1, 1, 1};
  bool has_reduced = false;
  for (const Axis& axis : axes) {
    if (axis.is_reduced) {
      if (has_reduced) return false;
      has_reduced = true;
      middle->n = axis.size;
    } else {
      (has_reduced ? middle->inner : middle->outer) *= axis.size;
    }
  }
  // nothing to reduce: every element is a separate row
  if (!has_reduced) *middle = {middle->outer, 1, 1};
  return true;
}

struct Options {
  Reducer reducer;
  int64_t divisor;
};

// Reduces the input to output 0, at once or in parts: x -> `num_outputs`
// outputs, or x -> num_outputs * parts partial results in scratch -> outputs.
// `make.operator()<From, To>()` returns the body that cuts x into parts,
// `combine.operator()<From, To>()` the body for partial results.
template <typename X, typename Y, typename Make, typename Combine>
void AddInParts(KernelBuilder& builder, int64_t num_outputs, int64_t parts,
                const Make& make, const Combine& combine) {
  using A = Arithmetic<X>;
  if (parts == 1) {
    builder.Launch(make.template operator()<X, Y>(), num_outputs,
                   [](auto& body, const KernelBindings& bindings) {
                     body.x = In<X>(bindings, 0);
                     body.y = Out<Y>(bindings);
                   });
    return;
  }
  const int64_t num_partial = num_outputs * parts;
  const size_t partial =
      builder.AddScratch(static_cast<size_t>(num_partial) * sizeof(A));
  builder.Launch(make.template operator()<X, A>(), num_partial,
                 [partial](auto& body, const KernelBindings& bindings) {
                   body.x = In<X>(bindings, 0);
                   body.y = Scratch<A>(bindings, partial);
                 });
  builder.Launch(combine.template operator()<A, Y>(), num_outputs,
                 [partial](auto& body, const KernelBindings& bindings) {
                   body.x = Scratch<A>(bindings, partial);
                   body.y = Out<Y>(bindings);
                 });
}

template <typename X, typename Y>
void AddRows(KernelBuilder& builder, const Middle& m, const Options& options) {
  const int64_t parts = PartsOf(m.n / Warp::kSize, m.outer * Warp::kSize);
  const auto body = [&]<typename From, typename To>(int64_t n, int64_t cut,
                                                    int64_t divisor) {
    return ReduceRow<From, To>{
        .n = n, .parts = cut, .divisor = divisor, .reducer = options.reducer};
  };
  AddInParts<X, Y>(
      builder, m.outer, parts,
      [&]<typename From, typename To>() {
        return body.template operator()<From, To>(
            m.n, parts, parts == 1 ? options.divisor : 1);
      },
      [&]<typename From, typename To>() {
        return body.template operator()<From, To>(parts, 1, options.divisor);
      });
}

template <typename X, typename Y>
void AddColumns(KernelBuilder& builder, const Middle& m,
                const Options& options) {
  const int64_t parts = PartsOf(m.n, m.outer * m.inner);
  const auto body = [&]<typename From, typename To>(int64_t n, int64_t cut,
                                                    int64_t divisor) {
    return ReduceColumn<From, To>{.n = n,
                                  .columns = m.inner,
                                  .parts = cut,
                                  .divisor = divisor,
                                  .reducer = options.reducer};
  };
  AddInParts<X, Y>(
      builder, m.outer * m.inner, parts,
      [&]<typename From, typename To>() {
        return body.template operator()<From, To>(
            m.n, parts, parts == 1 ? options.divisor : 1);
      },
      [&]<typename From, typename To>() {
        return body.template operator()<From, To>(parts, 1, options.divisor);
      });
}

template <typename X, typename Y>
void AddBox(KernelBuilder& builder, const std::vector<Axis>& axes,
            const Options& options) {
  ReduceBox<X, Y> body{
      .n = 1, .divisor = options.divisor, .reducer = options.reducer};
  for (const Axis& axis : axes) {
    Axes& to = axis.is_reduced ? body.reduced : body.kept;
    to.sizes[to.rank] = axis.size;
    to.strides[to.rank] = axis.stride;
    ++to.rank;
    if (axis.is_reduced) body.n *= axis.size;
  }
  builder.Launch(body, builder.output().shape.num_elements(),
                 [](ReduceBox<X, Y>& b, const KernelBindings& bindings) {
                   b.x = In<X>(bindings, 0);
                   b.y = Out<Y>(bindings);
                 });
}

template <typename X, typename Y>
void AddReduction(KernelBuilder& builder, const Options& options) {
  const Shape& shape = builder.input().shape;
  const std::vector<Axis> axes =
      MergedAxes(shape, builder.attributes().Ints("axes"));
  Middle middle{};
  if (!IsMiddle(axes, &middle)) {
    AddBox<X, Y>(builder, axes, options);
  } else if (middle.inner > 1) {
    AddColumns<X, Y>(builder, middle, options);
  } else {
    AddRows<X, Y>(builder, middle, options);
  }
}

void MakeReduction(KernelBuilder& builder, Reduction kind, bool is_mean) {
  Options options{.reducer = {kind}, .divisor = 1};
  if (is_mean) {
    for (const int64_t axis : builder.attributes().Ints("axes")) {
      options.divisor *= builder.input().shape[static_cast<int>(axis)];
    }
  }
  if (builder.input().dtype == DType::kI64) {
    AddReduction<int64_t, int64_t>(builder, options);
    return;
  }
  if (builder.input().dtype == DType::kBF16 &&
      builder.output().dtype == DType::kF32) {
    AddReduction<BFloat16, float>(builder, options);
    return;
  }
  DispatchFloat(builder.input().dtype,
                [&]<typename T>() { AddReduction<T, T>(builder, options); });
}

std::string WhyNotReduce(const KernelRequest& request) {
  const DType dtype = request.input(0).dtype;
  if (dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kI64) {
    return {};
  }
  return "it takes f32, bf16 or i64, got " + request.input(0).ToString();
}

}  // namespace

int64_t PartsOf(int64_t rows, int64_t columns) {
  const int64_t wanted = kWantedThreads / std::max<int64_t>(columns, 1);
  return std::clamp<int64_t>(wanted, 1,
                             std::max<int64_t>(rows / kMinPartSize, 1));
}

void AddPartialSums(KernelBuilder& builder, size_t scratch_offset,
                    int64_t parts, int64_t columns, size_t output) {
  DispatchFloat(builder.output(output).dtype, [&]<typename T>() {
    const ReduceColumn<float, T> body{.n = parts,
                                      .columns = columns,
                                      .parts = 1,
                                      .divisor = 1,
                                      .reducer = {Reduction::kSum}};
    builder.Launch(body, columns,
                   [scratch_offset, output](ReduceColumn<float, T>& b,
                                            const KernelBindings& bindings) {
                     b.x = Scratch<float>(bindings, scratch_offset);
                     b.y = Out<T>(bindings, output);
                   });
  });
}

void AddReduceKernels(CudaKernelTable& table) {
  table["ReduceSum"] = {[](KernelBuilder& builder) {
                          MakeReduction(builder, Reduction::kSum, false);
                        },
                        &WhyNotReduce};
  table["ReduceMean"] = {[](KernelBuilder& builder) {
                           MakeReduction(builder, Reduction::kSum, true);
                         },
                         &WhyNotReduce};
  table["ReduceMax"] = {[](KernelBuilder& builder) {
                          MakeReduction(builder, Reduction::kMax, false);
                        },
                        &WhyNotReduce};
  table["ReduceMin"] = {[](KernelBuilder& builder) {
                          MakeReduction(builder, Reduction::kMin, false);
                        },
                        &WhyNotReduce};
}

}  // namespace replicant::kernels::cuda
