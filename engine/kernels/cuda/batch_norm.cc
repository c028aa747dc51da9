#include <algorithm>
#include <optional>

#include "engine/graph/ops/norm.h"
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
// if there is one, with the attribute "residual_epsilon" the x of its norm. The
// mask of the relu is output 3 if there is one.
template <typename T, typename V, typename Place>
void AddNormalise(KernelBuilder& builder, size_t residual, const Place& place) {
  const bool has_residual = builder.node().inputs.size() > residual;
  const bool has_mask = builder.node().outputs.size() > 3;
  const NormRows rows = RowsOf(builder.input(), builder.input(1));
  DispatchLanes<T>(rows.channels, [&]<int kLanes>() {
    using Body = BatchNorm<T, V, kLanes>;
    const Body body{
        .shape = CutFinely<kLanes>(rows),
        .epsilon = static_cast<float>(builder.attributes().Float("epsilon")),
        .has_relu = builder.attributes().Bool("relu")};
    const auto bind = [=](Body& b, const KernelBindings& bindings) {
      const Statistics<const V> statistics = place(bindings);
      b.x = In<T>(bindings, 0);
      b.gamma = In<V>(bindings, 1);
      b.beta = In<V>(bindings, 2);
      b.mean = statistics.mean;
      b.variance = statistics.variance;
      b.residual = has_residual ? In<T>(bindings, residual) : nullptr;
      b.y = Out<T>(bindings);
      b.mask = has_mask ? Out<uint8_t>(bindings, 3) : nullptr;
    };
    if (!builder.attributes().Has("residual_epsilon")) {
      builder.Launch(body, NumSlices<kLanes>(body.shape), bind);
      return;
    }
    using Pair = BatchNormPair<T, V, kLanes>;
    const Pair pair{.norm = body,
                    .epsilon = static_cast<float>(
                        builder.attributes().Float("residual_epsilon"))};
    builder.Launch(pair, NumSlices<kLanes>(body.shape),
                   [=](Pair& b, const KernelBindings& bindings) {
                     bind(b.norm, bindings);
                     b.gamma = In<V>(bindings, residual + 1);
                     b.beta = In<V>(bindings, residual + 2);
                     b.mean = In<V>(bindings, residual + 3);
                     b.variance = In<V>(bindings, residual + 4);
                   });
  });
}

// Adds the max pool of y, and the places of the maxima as output 3.
template <typename T, typename V>
void AddNormaliseAndPool(KernelBuilder& builder) {
  const Shape& x = builder.input().shape;
  const graph::TensorType& y = builder.output();
  const graph::Attributes& attributes = builder.attributes();
  DispatchLanes<T>(x[3], [&]<int kLanes>() {
    using Body = BatchNormMaxPool<T, V, kLanes>;
    const Body body{.s = {.h = x[1],
                          .w = x[2],
                          .c = x[3],
                          .yh = y.shape[1],
                          .yw = y.shape[2],
                          .window = attributes.Int("pool_window"),
                          .stride = attributes.Int("pool_stride"),
                          .padding = attributes.Int("pool_padding")},
                    .epsilon = static_cast<float>(attributes.Float("epsilon"))};
    builder.Launch(body, y.shape.num_elements() / kLanes,
                   [](Body& b, const KernelBindings& bindings) {
                     b.x = In<T>(bindings, 0);
                     b.gamma = In<V>(bindings, 1);
                     b.beta = In<V>(bindings, 2);
                     b.mean = Out<V>(bindings, 1);
                     b.variance = Out<V>(bindings, 2);
                     b.y = Out<T>(bindings, 0);
                     b.places = Out<uint8_t>(bindings, 3);
                   });
  });
}

// inputs: x, gamma, beta, perhaps a residual or its norm's; outputs: y, mean,
// variance, perhaps the relu's mask or the places of the pool's maxima
void MakeBatchNorm(KernelBuilder& builder) {
  builder.ReadAgain(builder.input().SizeBytes());
  DispatchFloat(
      builder.input().dtype, builder.input(1).dtype,
      [&]<typename T, typename V>() {
        const auto place = [](const KernelBindings& bindings) {
          return Statistics<V>{Out<V>(bindings, 1), Out<V>(bindings, 2)};
        };
        AddStatistics<T, V>(builder, place);
        if (builder.attributes().Has("pool_window")) {
          AddNormaliseAndPool<T, V>(builder);
          return;
        }
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

// x -> mean, variance
void MakeBatchStatistics(KernelBuilder& builder) {
  DispatchFloat(
      builder.input().dtype, builder.output().dtype,
      [&]<typename T, typename V>() {
        AddStatistics<T, V>(builder, [](const KernelBindings& bindings) {
          return Statistics<V>{Out<V>(bindings, 0), Out<V>(bindings, 1)};
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

// Where a gradient finds the mask of its relu, the other part of dy and the
// residual's norm, by input, and where it puts dz, by output.
struct MaskedParts {
  int y = -1;
  int mask = -1;
  int second_dy = -1;
  int residual = -1;  // with dz, and dgamma as output 5
  // Unless there is dz, dy is the gradient before the relu, or the relu's mask
  // follows from x.
  std::optional<size_t> dz;
};

// Input `input`; null for -1.
template <typename T>
const T* InOrNull(const KernelBindings& bindings, int input) {
  return input < 0 ? nullptr : In<T>(bindings, static_cast<size_t>(input));
}

// The gradients' common part. `in` returns what they read, for some bindings.
template <typename T, typename V, typename MakeInputs>
class GradientBuilder {
 public:
  // dgamma and dbeta are outputs `dgamma` and `dgamma` + 1.
  GradientBuilder(KernelBuilder& builder, const MakeInputs& in,
                  const MaskedParts& parts, size_t dgamma)
      : builder_(builder),
        in_(in),
        parts_(parts),
        shape_(RowsOf(builder.input(1), builder.input(2))),
        totals_(AddTotalsScratch()),
        residual_totals_(parts.residual < 0 ? 0 : AddTotalsScratch()) {
    DispatchLanes<T>(shape_.channels, [&]<int kLanes>() {
      const NormRows shape = Cut<kLanes>(shape_);
      const Sums sums = AddSumsScratch(shape);
      if (parts_.residual >= 0) {
        const Sums others = AddSumsScratch(shape);
        AddPairSums<kLanes>(shape, sums, others);
        AddTotals(others, static_cast<size_t>(parts_.residual) + 1,
                  /*dgamma=*/5, residual_totals_);
      } else if (parts_.dz) {
        using Body = BatchNormMaskedSums<T, V, kLanes>;
        builder_.Launch(Body{}, NumSlices<kLanes>(shape),
                        BindMasked<Body>(shape, sums));
      } else {
        using Body = BatchNormSums<T, V, kLanes>;
        builder_.Launch(Body{}, NumSlices<kLanes>(shape),
                        BindSums<Body>(shape, sums));
      }
      AddTotals(sums, /*gamma=*/2, dgamma, totals_);
    });
  }

  // Adds dx, output `dx`, and that of the residual's norm, output 4.
  void AddInputGradient(size_t dx) {
    DispatchLanes<T>(shape_.channels, [&]<int kLanes>() {
      using Body = BatchNormInputGradient<T, V, kLanes>;
      const NormRows shape = CutFinely<kLanes>(shape_);
      const auto bind = [=, in = in_, dz = parts_.dz, totals = totals_](
                            Body& b, const KernelBindings& bindings) {
        b.in = in(bindings);
        b.in.shape = shape;
        if (dz) {
          b.in.dy = Out<T>(bindings, *dz);
          b.in.has_relu = false;
        }
        b.totals = Scratch<float>(bindings, totals);
        b.dx = Out<T>(bindings, dx);
      };
      if (parts_.residual < 0) {
        builder_.Launch(Body{}, NumSlices<kLanes>(shape), bind);
        return;
      }
      using Pair = BatchNormPairInputGradient<T, V, kLanes>;
      builder_.Launch(
          Pair{}, NumSlices<kLanes>(shape),
          [=, residual = ResidualInputs(shape), totals = residual_totals_](
              Pair& b, const KernelBindings& bindings) {
            bind(b.norm, bindings);
            b.residual.in = residual(bindings);
            b.residual.totals = Scratch<float>(bindings, totals);
            b.residual.dx = Out<T>(bindings, 4);
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
  // Sums of dz and of dz x^ over parts of the rows, in scratch.
  struct Sums {
    size_t sums, dots;
    int64_t parts;
  };

  size_t AddTotalsScratch() {
    return builder_.AddScratch(static_cast<size_t>(2 * shape_.channels) *
                               sizeof(float));
  }
  Sums AddSumsScratch(const NormRows& shape) {
    const int64_t examples = shape.rows / shape.example_size;
    const auto size_bytes =
        static_cast<size_t>(examples * shape.parts * shape.channels) *
        sizeof(float);
    const size_t sums = builder_.AddScratch(size_bytes);
    return {.sums = sums,
            .dots = builder_.AddScratch(size_bytes),
            .parts = shape.parts};
  }

  template <typename Body>
  auto BindSums(const NormRows& shape, const Sums& sums) const {
    return [=, in = in_](Body& b, const KernelBindings& bindings) {
      b.in = in(bindings);
      b.in.shape = shape;
      b.sums = Scratch<float>(bindings, sums.sums);
      b.dots = Scratch<float>(bindings, sums.dots);
    };
  }
  template <typename Body>
  auto BindMasked(const NormRows& shape, const Sums& sums) const {
    return [bind = BindSums<Body>(shape, sums), parts = parts_](
               Body& b, const KernelBindings& bindings) {
      bind(b, bindings);
      b.second_dy = InOrNull<T>(bindings, parts.second_dy);
      b.y = InOrNull<T>(bindings, parts.y);
      b.mask = InOrNull<uint8_t>(bindings, parts.mask);
      b.dz = Out<T>(bindings, *parts.dz);
    };
  }
  // What the gradient of the residual's norm reads; its dy is dz.
  auto ResidualInputs(const NormRows& shape) const {
    const BatchNormInputs<T, V> base{
        .shape = shape,
        .epsilon =
            static_cast<float>(builder_.attributes().Float("residual_epsilon")),
        .has_relu = false};
    return
        [base, dz = *parts_.dz, first = static_cast<size_t>(parts_.residual)](
            const KernelBindings& bindings) {
          BatchNormInputs<T, V> in = base;
          in.dy = Out<T>(bindings, dz);
          in.x = In<T>(bindings, first);
          in.gamma = In<V>(bindings, first + 1);
          in.beta = in.gamma;  // counts only where there is a relu
          in.mean = In<V>(bindings, first + 2);
          in.variance = In<V>(bindings, first + 3);
          return in;
        };
  }
  template <int kLanes>
  void AddPairSums(const NormRows& shape, const Sums& sums,
                   const Sums& others) {
    using Body = BatchNormPairSums<T, V, kLanes>;
    builder_.Launch(
        Body{}, NumSlices<kLanes>(shape),
        [bind = BindMasked<BatchNormMaskedSums<T, V, kLanes>>(shape, sums),
         residual = ResidualInputs(shape),
         others](Body& b, const KernelBindings& bindings) {
          bind(b.norm, bindings);
          b.residual = residual(bindings);
          b.sums = Scratch<float>(bindings, others.sums);
          b.dots = Scratch<float>(bindings, others.dots);
        });
  }

  // Adds dgamma, dbeta and the totals over a channel.
  void AddTotals(const Sums& sums, size_t gamma, size_t dgamma, size_t totals) {
    const int64_t channels = shape_.channels;
    const int64_t examples = shape_.rows / shape_.example_size;
    using Vectors = BatchNormVectors<V>;
    builder_.Launch(Vectors{.channels = channels, .parts = sums.parts},
                    examples * channels,
                    [sums, dgamma](Vectors& b, const KernelBindings& bindings) {
                      b.sums = Scratch<float>(bindings, sums.sums);
                      b.dots = Scratch<float>(bindings, sums.dots);
                      b.dgamma = Out<V>(bindings, dgamma);
                      b.dbeta = Out<V>(bindings, dgamma + 1);
                    });
    using Totals = BatchNormTotals<V>;
    builder_.Launch(
        Totals{.channels = channels, .examples = examples, .parts = sums.parts},
        channels,
        [sums, gamma, totals](Totals& b, const KernelBindings& bindings) {
          b.gamma = In<V>(bindings, gamma);
          b.sums = Scratch<float>(bindings, sums.sums);
          b.dots = Scratch<float>(bindings, sums.dots);
          b.totals = Scratch<float>(bindings, totals);
        });
  }

  KernelBuilder& builder_;
  const MakeInputs in_;
  const MaskedParts parts_;
  const NormRows shape_;
  const size_t totals_;
  const size_t residual_totals_;
};

// The operands of a gradient: dy, x, gamma and beta are inputs 0 to 3.
template <typename T, typename V>
BatchNormInputs<T, V> InputsOf(const KernelBindings& bindings,
                               BatchNormInputs<T, V> in,
                               const Statistics<const V>& statistics) {
  in.dy = In<T>(bindings, 0);
  in.x = In<T>(bindings, 1);
  in.gamma = In<V>(bindings, 2);
  in.beta = In<V>(bindings, 3);
  in.mean = statistics.mean;
  in.variance = statistics.variance;
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

// inputs: dy, x, gamma, beta, mean, variance, perhaps those of
// graph::BatchNormGradientInputs; outputs: dx, dgamma, dbeta, perhaps the
// residual's gradient, perhaps dx, dgamma and dbeta of the residual's norm
void MakeBatchNormGradient(KernelBuilder& builder) {
  const graph::BatchNormGradientInputs more(builder.node());
  const MaskedParts parts{.y = more.y,
                          .mask = more.mask,
                          .second_dy = more.second_dy,
                          .residual = more.residual,
                          .dz = DzOf(builder)};
  // dy or dz, and each norm's x
  builder.ReadAgain((more.residual < 0 ? 2 : 3) * builder.output().SizeBytes());
  DispatchFloat(
      builder.input(1).dtype, builder.input(2).dtype,
      [&]<typename T, typename V>() {
        const auto in = [base = InputsWithoutAddresses<T, V>(builder)](
                            const KernelBindings& bindings) {
          return InputsOf<T, V>(bindings, base,
                                {In<V>(bindings, 4), In<V>(bindings, 5)});
        };
        GradientBuilder<T, V, decltype(in)> gradient(builder, in, parts,
                                                     /*dgamma=*/1);
        gradient.AddInputGradient(/*dx=*/0);
      });
}

// inputs: dy, x, gamma, beta, moments, perhaps y; outputs: dgamma, dbeta,
// dmoments, and with a relu dz
void MakeBatchNormApplyGradient(KernelBuilder& builder) {
  const int64_t channels = builder.input(4).shape[1];
  const MaskedParts parts{.y = builder.node().inputs.size() > 5 ? 5 : -1,
                          .dz = DzOf(builder)};
  DispatchFloat(
      builder.input(1).dtype, builder.input(2).dtype,
      [&]<typename T, typename V>() {
        const auto in = [channels,
                         base = InputsWithoutAddresses<T, V>(builder)](
                            const KernelBindings& bindings) {
          return InputsOf<T, V>(bindings, base,
                                RowsOfMoments(In<V>(bindings, 4), channels));
        };
        GradientBuilder<T, V, decltype(in)> gradient(builder, in, parts,
                                                     /*dgamma=*/0);
        gradient.AddMomentsGradient(/*output=*/2);
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
  table["BatchStatistics"] = {&MakeBatchStatistics, &WhyNotF32OrBF16};
  table["BatchNormApply"] = {&MakeBatchNormApply, &WhyNotF32OrBF16};
  table["BatchNormApplyGradient"] = {&MakeBatchNormApplyGradient,
                                     &WhyNotF32OrBF16};
  table["CombineMoments"] = {&MakeCombineMoments, &WhyNotF32OrBF16};
  table["CombineMomentsGradient"] = {&MakeCombineMomentsGradient,
                                     &WhyNotF32OrBF16};
}

}  // namespace replicant::kernels::cuda
