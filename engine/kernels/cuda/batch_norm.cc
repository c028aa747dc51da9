#include <algorithm>
#include <optional>

#include "engine/kernels/cuda/cuda_kernels.h"

// Batch norm, whole and in parts for statistics over several replicas. Inputs
// and outputs as in graph/ops/norm.cc.
namespace replicant::kernels::cuda {
namespace {

// Number of threads that read memory as fast as the device can, each several
// packs ahead.
constexpr int64_t kWantedThreads = 1 << 15;
// Rows of a part: fewer make too many partial sums, or read a slice's
// parameters too often.
constexpr int64_t kMinRows = 16;

NormRows CutInto(NormRows shape, int64_t parts) {
  const auto divide = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  shape.part_size = divide(shape.example_size, parts);
  shape.parts = divide(shape.example_size, shape.part_size);
  return shape;
}

// Parts that make enough threads of kLanes channels each.
template <int kLanes>
int64_t PartsFor(const NormRows& shape) {
  return std::max<int64_t>(kWantedThreads * shape.example_size * kLanes /
                               (shape.rows * shape.channels),
                           1);
}

// For sums.
template <int kLanes>
NormRows Cut(const NormRows& shape) {
  return CutInto(shape, std::clamp<int64_t>(shape.example_size / kMinRows, 1,
                                            PartsFor<kLanes>(shape)));
}

// For work without sums, which may have many parts.
template <int kLanes>
NormRows CutFinely(const NormRows& shape) {
  const int64_t parts =
      std::max(PartsFor<kLanes>(shape), shape.example_size / kMinRows);
  return CutInto(shape, std::min(parts, shape.example_size));
}

template <int kLanes>
int64_t NumSlices(const NormRows& shape) {
  return shape.rows / shape.example_size * shape.parts * shape.channels /
         kLanes;
}

NormRows RowsOf(const graph::TensorType& x) {
  const int64_t channels = x.shape[x.shape.rank() - 1];
  const int64_t rows = x.shape.num_elements() / channels;
  return CutInto({.rows = rows, .channels = channels, .example_size = rows}, 1);
}

NormRows RowsOf(const graph::TensorType& x, const graph::TensorType& gamma) {
  NormRows shape = RowsOf(x);
  if (gamma.shape.rank() == 2) shape.example_size = shape.rows / x.shape[0];
  return shape;
}

// Addresses of the mean and the variance of a launch.
template <typename V>
struct Statistics {
  V* mean;
  V* variance;
};

// Adds the mean and variance of each channel of input 0; `place` returns where
// they go.
template <typename T, typename V, typename Place>
void AddStatistics(KernelBuilder& builder, const Place& place) {
  const NormRows all = RowsOf(builder.input());
  DispatchLanes<T>(all.channels, [&]<int kLanes>() {
    const NormRows shape = Cut<kLanes>(all);
    const size_t partial = builder.AddScratch(
        static_cast<size_t>(2 * shape.parts * shape.channels) * sizeof(float));
    using Moments = ColumnMoments<T, kLanes>;
    builder.Launch(Moments{.shape = shape}, NumSlices<kLanes>(shape),
                   [partial](Moments& b, const KernelBindings& bindings) {
                     b.x = In<T>(bindings, 0);
                     b.moments = Scratch<float>(bindings, partial);
                   });
    using Combine = CombineColumnMoments<V>;
    builder.Launch(
        Combine{.shape = shape}, shape.channels,
        [partial, place](Combine& b, const KernelBindings& bindings) {
          const Statistics<V> statistics = place(bindings);
          b.moments = Scratch<float>(bindings, partial);
          b.mean = statistics.mean;
          b.variance = statistics.variance;
        });
  });
}

// Adds y from statistics that `place` finds. The residual is input `residual`
// if there is one.
template <typename T, typename V, typename Place>
void AddNormalise(KernelBuilder& builder, size_t residual, const Place& place) {
  const bool has_residual = builder.node().inputs.size() > residual;
  const NormRows rows = RowsOf(builder.input(), builder.input(1));
  DispatchLanes<T>(rows.channels, [&]<int kLanes>() {
    using Body = BatchNorm<T, V, kLanes>;
    const Body body{
        .shape = CutFinely<kLanes>(rows),
        .epsilon = static_cast<float>(builder.attributes().Float("epsilon")),
        .has_relu = builder.attributes().Bool("relu")};
    builder.Launch(body, NumSlices<kLanes>(body.shape),
                   [=](Body& b, const KernelBindings& bindings) {
                     const Statistics<const V> statistics = place(bindings);
                     b.x = In<T>(bindings, 0);
                     b.gamma = In<V>(bindings, 1);
                     b.beta = In<V>(bindings, 2);
                     b.mean = statistics.mean;
                     b.variance = statistics.variance;
                     b.residual =
                         has_residual ? In<T>(bindings, residual) : nullptr;
                     b.y = Out<T>(bindings);
                   });
  });
}

// inputs: x, gamma, beta, perhaps a residual; outputs: y, mean, variance
void MakeBatchNorm(KernelBuilder& builder) {
  DispatchFloat(
      builder.input().dtype, builder.input(1).dtype,
      [&]<typename T, typename V>() {
        const auto place = [](const KernelBindings& bindings) {
          return Statistics<V>{Out<V>(bindings, 1), Out<V>(bindings, 2)};
        };
        AddStatistics<T, V>(builder, place);
        AddNormalise<T, V>(builder, /*residual=*/3,
                           [place](const KernelBindings& bindings) {
                             const Statistics<V> s = place(bindings);
                             return Statistics<const V>{s.mean, s.variance};
                           });
      });
}

// The rows of moments [2, C] at `moments`.
template <typename V>
Statistics<V> RowsOfMoments(V* moments, int64_t channels) {
  return {moments, moments + channels};
}

void MakeBatchMoments(KernelBuilder& builder) {
  const int64_t channels = builder.output().shape[1];
  DispatchFloat(builder.input().dtype, builder.output().dtype,
                [&]<typename T, typename V>() {
                  AddStatistics<T, V>(
                      builder, [channels](const KernelBindings& bindings) {
                        return RowsOfMoments(Out<V>(bindings), channels);
                      });
                });
}

// inputs: x, gamma, beta, moments [2, C], perhaps a residual
void MakeBatchNormApply(KernelBuilder& builder) {
  const int64_t channels = builder.input(3).shape[1];
  DispatchFloat(builder.input().dtype, builder.input(1).dtype,
                [&]<typename T, typename V>() {
                  AddNormalise<T, V>(
                      builder, /*residual=*/4,
                      [channels](const KernelBindings& bindings) {
                        return RowsOfMoments(In<V>(bindings, 3), channels);
                      });
                });
}

// The gradients' common part. `in` returns what they read, for some bindings.
template <typename T, typename V, typename MakeInputs>
class GradientBuilder {
 public:
  // dgamma and dbeta are outputs `dgamma` and `dgamma` + 1.
  GradientBuilder(KernelBuilder& builder, const MakeInputs& in, size_t dgamma)
      : builder_(builder),
        in_(in),
        shape_(RowsOf(builder.input(1), builder.input(2))),
        totals_(builder.AddScratch(static_cast<size_t>(2 * shape_.channels) *
                                   sizeof(float))) {
    AddSums(dgamma);
  }

  // Adds dx and dz, outputs `dx` and `dz`, if there are such.
  void AddElements(std::optional<size_t> dx, std::optional<size_t> dz) {
    if (!dx && !dz) return;
    DispatchLanes<T>(shape_.channels, [&]<int kLanes>() {
      using Body = BatchNormInputGradient<T, V, kLanes>;
      const NormRows shape = CutFinely<kLanes>(shape_);
      builder_.Launch(Body{}, NumSlices<kLanes>(shape),
                      [=, in = in_, totals = totals_](
                          Body& b, const KernelBindings& bindings) {
                        b.in = in(bindings);
                        b.in.shape = shape;
                        b.totals = Scratch<float>(bindings, totals);
                        b.dx = dx ? Out<T>(bindings, *dx) : nullptr;
                        b.dz = dz ? Out<T>(bindings, *dz) : nullptr;
                      });
    });
  }
  // Adds dmoments, output `output`.
  void AddMomentsGradient(size_t output) {
    using Body = BatchNormMomentsGradient<V>;
    const Body body{
        .channels = shape_.channels,
        .epsilon = static_cast<float>(builder_.attributes().Float("epsilon"))};
    builder_.Launch(body, shape_.channels,
                    [in = in_, output, totals = totals_](
                        Body& b, const KernelBindings& bindings) {
                      b.variance = in(bindings).variance;
                      b.totals = Scratch<float>(bindings, totals);
                      b.dmoments = Out<V>(bindings, output);
                    });
  }

 private:
  // Adds dgamma, dbeta and the totals over a channel.
  void AddSums(size_t dgamma) {
    const int64_t channels = shape_.channels;
    const int64_t examples = shape_.rows / shape_.example_size;
    size_t sums = 0;
    size_t dots = 0;
    int64_t parts = 1;
    DispatchLanes<T>(shape_.channels, [&]<int kLanes>() {
      const NormRows shape = Cut<kLanes>(shape_);
      parts = shape.parts;
      const auto size_bytes =
          static_cast<size_t>(examples * parts * channels) * sizeof(float);
      sums = builder_.AddScratch(size_bytes);
      dots = builder_.AddScratch(size_bytes);
      using Sums = BatchNormSums<T, V, kLanes>;
      builder_.Launch(Sums{}, NumSlices<kLanes>(shape),
                      [=, in = in_](Sums& b, const KernelBindings& bindings) {
                        b.in = in(bindings);
                        b.in.shape = shape;
                        b.sums = Scratch<float>(bindings, sums);
                        b.dots = Scratch<float>(bindings, dots);
                      });
    });
    using Vectors = BatchNormVectors<V>;
    builder_.Launch(
        Vectors{.channels = channels, .parts = parts}, examples * channels,
        [sums, dots, dgamma](Vectors& b, const KernelBindings& bindings) {
          b.sums = Scratch<float>(bindings, sums);
          b.dots = Scratch<float>(bindings, dots);
          b.dgamma = Out<V>(bindings, dgamma);
          b.dbeta = Out<V>(bindings, dgamma + 1);
        });
    using Totals = BatchNormTotals<V>;
    builder_.Launch(
        Totals{.channels = channels, .examples = examples, .parts = parts},
        channels,
        [sums, dots, totals = totals_](Totals& b,
                                       const KernelBindings& bindings) {
          b.gamma = In<V>(bindings, 2);
          b.sums = Scratch<float>(bindings, sums);
          b.dots = Scratch<float>(bindings, dots);
          b.totals = Scratch<float>(bindings, totals);
        });
  }

  KernelBuilder& builder_;
  const MakeInputs in_;
  const NormRows shape_;
  const size_t totals_;
};

// The operands of a gradient: dy, x, gamma and beta are inputs 0 to 3, y is
// input `y` if there is one.
template <typename T, typename V>
BatchNormInputs<T, V> InputsOf(const KernelBindings& bindings,
                               BatchNormInputs<T, V> in,
                               const Statistics<const V>& statistics,
                               size_t y) {
  in.dy = In<T>(bindings, 0);
  in.x = In<T>(bindings, 1);
  in.gamma = In<V>(bindings, 2);
  in.beta = In<V>(bindings, 3);
  in.mean = statistics.mean;
  in.variance = statistics.variance;
  in.y = bindings.inputs.size() > y ? In<T>(bindings, y) : nullptr;
  return in;
}

template <typename T, typename V>
BatchNormInputs<T, V> InputsWithoutAddresses(const KernelBuilder& builder) {
  return {.shape = RowsOf(builder.input(1), builder.input(2)),
          .epsilon = static_cast<float>(builder.attributes().Float("epsilon")),
          .has_relu = builder.attributes().Bool("relu")};
}

// The output with dz, if there is one.
std::optional<size_t> DzOf(const KernelBuilder& builder) {
  if (builder.node().outputs.size() > 3) return 3;
  return std::nullopt;
}

// inputs: dy, x, gamma, beta, mean, variance, perhaps y; outputs: dx, dgamma,
// dbeta, perhaps the residual's gradient
void MakeBatchNormGradient(KernelBuilder& builder) {
  DispatchFloat(
      builder.input(1).dtype, builder.input(2).dtype,
      [&]<typename T, typename V>() {
        const auto in = [base = InputsWithoutAddresses<T, V>(builder)](
                            const KernelBindings& bindings) {
          return InputsOf<T, V>(bindings, base,
                                {In<V>(bindings, 4), In<V>(bindings, 5)},
                                /*y=*/6);
        };
        GradientBuilder<T, V, decltype(in)> gradient(builder, in, /*dgamma=*/1);
        gradient.AddElements(/*dx=*/0, DzOf(builder));
      });
}

// inputs: dy, x, gamma, beta, moments, perhaps y; outputs: dgamma, dbeta,
// dmoments, and with a relu dz
void MakeBatchNormApplyGradient(KernelBuilder& builder) {
  const int64_t channels = builder.input(4).shape[1];
  DispatchFloat(
      builder.input(1).dtype, builder.input(2).dtype,
      [&]<typename T, typename V>() {
        const auto in = [channels,
                         base = InputsWithoutAddresses<T, V>(builder)](
                            const KernelBindings& bindings) {
          return InputsOf<T, V>(bindings, base,
                                RowsOfMoments(In<V>(bindings, 4), channels),
                                /*y=*/5);
        };
        GradientBuilder<T, V, decltype(in)> gradient(builder, in, /*dgamma=*/0);
        gradient.AddMomentsGradient(/*output=*/2);
        gradient.AddElements(/*dx=*/std::nullopt, DzOf(builder));
      });
}

// moments [R, 2, C] -> [2, C]
void MakeCombineMoments(KernelBuilder& builder) {
  const Shape& moments = builder.input().shape;
  DispatchFloat(builder.output().dtype, [&]<typename V>() {
    using Body = CombineMoments<V>;
    builder.Launch(Body{.parts = moments[0], .channels = moments[2]},
                   moments[2], [](Body& b, const KernelBindings& bindings) {
                     b.moments = In<V>(bindings, 0);
                     b.y = Out<V>(bindings);
                   });
  });
}

// inputs: dmoments [2, C], moments [R, 2, C], their combination [2, C]
void MakeCombineMomentsGradient(KernelBuilder& builder) {
  const Shape& moments = builder.input(1).shape;
  DispatchFloat(builder.output().dtype, [&]<typename V>() {
    using Body = CombineMomentsGradient<V>;
    builder.Launch(Body{.parts = moments[0], .channels = moments[2]},
                   moments[0] * moments[2],
                   [](Body& b, const KernelBindings& bindings) {
                     b.dmoments = In<V>(bindings, 0);
                     b.moments = In<V>(bindings, 1);
                     b.combined = In<V>(bindings, 2);
                     b.y = Out<V>(bindings);
                   });
  });
}

}  // namespace

void AddBatchNormKernels(CudaKernelTable& table) {
  table["BatchNorm"] = {&MakeBatchNorm, &WhyNotF32OrBF16};
  table["BatchNormGradient"] = {&MakeBatchNormGradient, &WhyNotF32OrBF16};
  table["BatchMoments"] = {&MakeBatchMoments, &WhyNotF32OrBF16};
  table["BatchNormApply"] = {&MakeBatchNormApply, &WhyNotF32OrBF16};
  table["BatchNormApplyGradient"] = {&MakeBatchNormApplyGradient,
                                     &WhyNotF32OrBF16};
  table["CombineMoments"] = {&MakeCombineMoments, &WhyNotF32OrBF16};
  table["CombineMomentsGradient"] = {&MakeCombineMomentsGradient,
                                     &WhyNotF32OrBF16};
}

}  // namespace replicant::kernels::cuda
