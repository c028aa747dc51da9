#include "engine/kernels/cuda/cuda_kernels.h"

// Distributions and losses over the last dimension, and layer norm.
namespace replicant::kernels::cuda {
namespace {

struct Rows {
  explicit Rows(const graph::TensorType& x)
      : size(x.shape[x.shape.rank() - 1]),
        count(size == 0 ? 0 : x.shape.num_elements() / size) {}

  int64_t size;
  int64_t count;
};

void MakeSoftmax(KernelBuilder& builder) {
  const Rows rows(builder.input());
  DispatchFloat(builder.input().dtype, [&]<typename T>() {
    const Softmax<T> body{.n = rows.size,
                          .is_log = builder.node().op->name == "LogSoftmax"};
    builder.Launch(body, rows.count,
                   [](Softmax<T>& b, const KernelBindings& bindings) {
                     b.x = In<T>(bindings, 0);
                     b.y = Out<T>(bindings);
                   });
  });
}

void MakeCrossEntropy(KernelBuilder& builder) {
  const Rows rows(builder.input());
  DispatchFloat(builder.input().dtype, [&]<typename T>() {
    const CrossEntropy<T> body{.n = rows.size};
    builder.Launch(body, rows.count,
                   [](CrossEntropy<T>& b, const KernelBindings& bindings) {
                     b.logits = In<T>(bindings, 0);
                     b.target = In<T>(bindings, 1);
                     b.loss = Out<T>(bindings);
                   });
  });
}

void MakeProjection(KernelBuilder& builder) {
  const Rows rows(builder.input());
  const double v_min = builder.attributes().Float("v_min");
  const double v_max = builder.attributes().Float("v_max");
  DispatchFloat(builder.input().dtype, [&]<typename T>() {
    const Projection<T> body{
        .n = rows.size,
        .v_min = static_cast<float>(v_min),
        .gap = static_cast<float>((v_max - v_min) /
                                  static_cast<double>(rows.size - 1))};
    builder.Launch(body, rows.count,
                   [](Projection<T>& b, const KernelBindings& bindings) {
                     b.probabilities = In<T>(bindings, 0);
                     b.reward = In<T>(bindings, 1);
                     b.discount = In<T>(bindings, 2);
                     b.y = Out<T>(bindings);
                   });
  });
}

// inputs: x, gamma, beta; outputs: y, mean, 1 / sqrt(variance + epsilon)
void MakeLayerNorm(KernelBuilder& builder) {
  const Rows rows(builder.input());
  DispatchFloat(builder.input().dtype, builder.input(1).dtype,
                [&]<typename T, typename V>() {
                  using Body = LayerNorm<T, V>;
                  const Body body{.n = rows.size,
                                  .epsilon = static_cast<float>(
                                      builder.attributes().Float("epsilon"))};
                  builder.Launch(body, rows.count,
                                 [](Body& b, const KernelBindings& bindings) {
                                   b.x = In<T>(bindings, 0);
                                   b.gamma = In<V>(bindings, 1);
                                   b.beta = In<V>(bindings, 2);
                                   b.y = Out<T>(bindings, 0);
                                   b.mean = Out<V>(bindings, 1);
                                   b.scale = Out<V>(bindings, 2);
                                 });
                });
}

template <typename T, typename V>
void AddLayerNormVectors(KernelBuilder& builder, const Rows& rows) {
  using Body = LayerNormVectorGradient<T, V>;
  const int64_t parts = PartsOf(rows.count, rows.size);
  const auto size_bytes =
      static_cast<size_t>(parts * rows.size) * sizeof(float);
  const size_t dgamma = builder.AddScratch(size_bytes);
  const size_t dbeta = builder.AddScratch(size_bytes);
  const Body body{.rows = rows.count, .n = rows.size, .parts = parts};
  builder.Launch(body, parts * rows.size,
                 [dgamma, dbeta](Body& b, const KernelBindings& bindings) {
                   b.dy = In<T>(bindings, 0);
                   b.x = In<T>(bindings, 1);
                   b.mean = In<V>(bindings, 3);
                   b.scale = In<V>(bindings, 4);
                   b.dgamma = Scratch<float>(bindings, dgamma);
                   b.dbeta = Scratch<float>(bindings, dbeta);
                 });
  AddPartialSums(builder, dgamma, parts, rows.size, /*output=*/1);
  AddPartialSums(builder, dbeta, parts, rows.size, /*output=*/2);
}

// inputs: dy, x, gamma, mean, scale; outputs: dx, dgamma, dbeta
void MakeLayerNormGradient(KernelBuilder& builder) {
  const Rows rows(builder.input(1));
  // dy and x
  builder.ReadAgain(2 * builder.output().SizeBytes());
  DispatchFloat(builder.input(1).dtype, builder.input(2).dtype,
                [&]<typename T, typename V>() {
                  using Body = LayerNormInputGradient<T, V>;
                  builder.Launch(Body{.n = rows.size}, rows.count,
                                 [](Body& b, const KernelBindings& bindings) {
                                   b.dy = In<T>(bindings, 0);
                                   b.x = In<T>(bindings, 1);
                                   b.gamma = In<V>(bindings, 2);
                                   b.mean = In<V>(bindings, 3);
                                   b.scale = In<V>(bindings, 4);
                                   b.dx = Out<T>(bindings, 0);
                                 });
                  AddLayerNormVectors<T, V>(builder, rows);
                });
}

}  // namespace

void AddRowKernels(CudaKernelTable& table) {
  table["Softmax"] = {&MakeSoftmax, &WhyNotF32OrBF16};
  table["LogSoftmax"] = {&MakeSoftmax, &WhyNotF32OrBF16};
  table["SoftmaxCrossEntropy"] = {&MakeCrossEntropy, &WhyNotF32OrBF16};
  table["CategoricalProjection"] = {&MakeProjection, &WhyNotF32OrBF16};
  table["LayerNorm"] = {&MakeLayerNorm, &WhyNotF32OrBF16};
  table["LayerNormGradient"] = {&MakeLayerNormGradient, &WhyNotF32OrBF16};
}

}  // namespace replicant::kernels::cuda
