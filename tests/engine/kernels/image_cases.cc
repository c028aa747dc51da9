#include <fmt/format.h>

#include "engine/graph/ops/conv.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/image.h"
#include "engine/graph/ops/norm.h"
#include "engine/graph/ops/pool.h"
#include "engine/graph/ops/shape_ops.h"
#include "tests/engine/kernels/op_cases.h"

namespace replicant::testing {

using graph::Output;
using Outputs = std::vector<Output>;

namespace {

using Cases = std::vector<OpCase>;

struct Conv {
  std::string ToString() const {
    return fmt::format("{}x{}x{}x{}_o{}k{}s{}p{}", x[0], x[1], x[2], x[3], o, k,
                       stride, padding);
  }
  // How many products the longest sum has, that of a weight's gradient, with
  // those of a result.
  double sum_length() const {
    const int64_t num_pixels = x.num_elements() / x[3];
    return static_cast<double>(num_pixels + k * k * x[3]);
  }
  Output Of(CaseBuilder& b, Output image) const {
    return graph::Conv2d(image, b.Normal(Shape({o, x[3], k, k})),
                         {.stride = stride, .padding = padding});
  }

  Shape x;
  int64_t o, k, stride, padding;
  bool is_shifted = false;  // of pixels
};

void AddImages(Cases& cases) {
  const std::vector<Conv> convs = {{Shape({1, 1, 1, 1}), 1, 1, 1, 0},
                                   {Shape({2, 9, 11, 3}), 5, 3, 2, 1},
                                   {Shape({3, 13, 12, 9}), 32, 3, 2, 0},
                                   {Shape({2, 16, 16, 9}), 32, 8, 4, 0},
                                   {Shape({2, 8, 8, 16}), 16, 3, 1, 1},
                                   {Shape({2, 7, 7, 33}), 18, 4, 2, 0},
                                   {Shape({1, 12, 10, 32}), 32, 3, 1, 0},
                                   {Shape({5, 6, 6, 4}), 7, 1, 1, 0},
                                   // windows of one pixel: some pixels unseen,
                                   // many of them, many weights
                                   {Shape({2, 7, 5, 12}), 5, 1, 3, 0},
                                   {Shape({1, 70, 70, 3}), 4, 1, 2, 0},
                                   {Shape({3, 6, 6, 4}), 7, 1, 2, 1},
                                   {Shape({2, 5, 4, 384}), 352, 1, 1, 0},
                                   {Shape({2, 6, 5, 384}), 352, 1, 2, 0},
                                   // few pixels and many weights of larger ones
                                   {Shape({2, 5, 4, 384}), 304, 3, 1, 1},
                                   {Shape({1, 7, 6, 384}), 304, 3, 2, 0},
                                   // few enough to be multiplied forward, too
                                   {Shape({16, 4, 4, 384}), 304, 3, 1, 1},
                                   // more than is converted at a time
                                   {Shape({4, 64, 64, 72}), 2, 1, 1, 0},
                                   // and fewer than one of six sums on two
                                   // threads: 2 images of 3
                                   {Shape({18, 64, 64, 90}), 2, 1, 1, 0},
                                   // enough for Winograd's way: one block of
                                   // tiles, several, and each padding
                                   {Shape({2, 24, 23, 32}), 48, 3, 1, 1},
                                   {Shape({5, 31, 34, 48}), 32, 3, 1, 0},
                                   {Shape({1, 31, 33, 32}), 32, 3, 1, 2},
                                   // few channels, and several blocks of tiles
                                   {Shape({3, 31, 34, 32}), 32, 3, 1, 1},
                                   // in bf16 as well
                                   {Shape({2, 18, 17, 64}), 80, 3, 1, 1},
                                   // rows 1 KiB apart: RowSizeForProduct()
                                   {Shape({2, 18, 17, 256}), 32, 3, 1, 1},
                                   {Shape({2, 18, 17, 32}), 256, 3, 1, 1}};
  for (const Conv& c : convs) {
    cases.push_back(
        {"Conv2d_" + c.ToString(),
         [c](CaseBuilder& b) { return Outputs{c.Of(b, b.Normal(c.x))}; },
         c.sum_length()});
    cases.push_back({"Conv2dBiasRelu_" + c.ToString(),
                     [c](CaseBuilder& b) {
                       const Output y = c.Of(b, b.Normal(c.x));
                       return Outputs{
                           graph::Relu(graph::Add(y, b.Normal(Shape({c.o}))))};
                     },
                     c.sum_length()});
  }
  struct Pool {
    int64_t window, stride, padding, channels;
  };
  for (const Pool p : {Pool{2, 2, 0, 19}, Pool{3, 2, 1, 19}, Pool{3, 1, 2, 19},
                       Pool{3, 2, 1, 16}}) {
    const auto options = graph::PoolOptions{
        .window = p.window, .stride = p.stride, .padding = p.padding};
    const Shape x({3, 9, 8, p.channels});
    const std::string size =
        fmt::format("w{}s{}p{}c{}", p.window, p.stride, p.padding, p.channels);
    cases.push_back({"MaxPool2d_" + size,
                     [x, options](CaseBuilder& b) {
                       return Outputs{graph::MaxPool2d(b.Normal(x), options)};
                     },
                     9.0});
    cases.push_back({"AveragePool2d_" + size,
                     [x, options](CaseBuilder& b) {
                       return Outputs{
                           graph::AveragePool2d(b.Normal(x), options)};
                     },
                     9.0});
  }
  cases.push_back({"GlobalAveragePool",
                   [](CaseBuilder& b) {
                     return Outputs{graph::GlobalAveragePool(
                         b.Normal(Shape({3, 9, 8, 19})))};
                   },
                   72.0});
  cases.push_back({"UpsampleNearest2d",
                   [](CaseBuilder& b) {
                     return Outputs{graph::UpsampleNearest2d(
                         b.Normal(Shape({3, 4, 5, 7})), 3)};
                   },
                   9.0});
  for (const DType dtype : {DType::kU8, DType::kF32}) {
    cases.push_back({fmt::format("RandomShift_{}", DTypeName(dtype)),
                     [dtype](CaseBuilder& b) {
                       // some shifts are wider than the image
                       return Outputs{graph::RandomShift(
                           b.Whole(dtype, Shape({40, 6, 5, 9}), 0, 256),
                           b.Whole(DType::kI32, Shape({40, 2}), -8, 9))};
                     },
                     1.0, false});
  }
}

// Stacks of one image of frames, in bytes that no image takes.
void AddStacks(Cases& cases) {
  struct Stacks {
    const char* name;
    Shape slots;
    graph::FrameImage image;
  };
  const std::vector<Stacks> all = {
      {"gray", Shape({5, 4}), {.begin = 0, .pixels = 30, .channels = 1}},
      {"colour", Shape({40, 3}), {.begin = 5, .pixels = 77, .channels = 3}},
      {"windows", Shape({3, 6, 2}), {.begin = 40, .pixels = 9, .channels = 3}},
      {"depth", Shape({7, 1}), {.begin = 1, .pixels = 50, .channels = 4}}};
  for (const Stacks& stacks : all) {
    cases.push_back({fmt::format("GatherStacks_{}", stacks.name),
                     [stacks](CaseBuilder& b) {
                       // some slots are no rows
                       return Outputs{graph::GatherStacks(
                           b.Whole(DType::kU8, Shape({11, 241}), 0, 256),
                           b.Whole(DType::kI32, stacks.slots, -1, 12),
                           stacks.image)};
                     },
                     1.0, false, false});
  }
}

// A first layer: what backends may read as pixels (the pass fuse_pixels).
void AddPixelConvs(Cases& cases) {
  const std::vector<Conv> convs = {
      {Shape({3, 64, 64, 9}), 16, 8, 4, 0, true},
      {Shape({2, 16, 16, 9}), 32, 8, 4, 0, false},
      // tiles of Winograd's that reach beyond the result, and several blocks
      {Shape({9, 28, 24, 9}), 32, 8, 4, 0, true},
      {Shape({1, 72, 72, 9}), 64, 8, 4, 0, false},
      {Shape({3, 13, 12, 9}), 5, 3, 2, 1, true},
      // three vectors of channels, the last partly filled
      {Shape({2, 9, 11, 3}), 41, 3, 3, 0, true},
      // windows that leave pixels out between them, and see padding alone
      {Shape({2, 11, 14, 9}), 20, 2, 3, 2, true},
      // more windows in a row than there are registers
      {Shape({1, 5, 71, 16}), 33, 3, 1, 1, false},
      // more images than parts of a batch; one window each
      {Shape({37, 8, 8, 8}), 1, 8, 1, 0, true},
      // too few channels: floats are made first
      {Shape({2, 9, 8, 1}), 4, 3, 1, 1, true}};
  for (const Conv& c : convs) {
    const auto conv = [c](CaseBuilder& b) {
      Output pixels = b.Whole(DType::kU8, c.x, 0, 256);
      if (c.is_shifted) {
        // some shifts are wider than the image
        pixels = graph::RandomShift(
            pixels, b.Whole(DType::kI32, Shape({c.x[0], 2}), -15, 16));
      }
      return c.Of(b, graph::NormalizePixels(pixels, b.floating()));
    };
    cases.push_back({"PixelConv2d_" + c.ToString(),
                     [conv](CaseBuilder& b) { return Outputs{conv(b)}; },
                     c.sum_length()});
    cases.push_back({"PixelConv2dBiasElu_" + c.ToString(),
                     [conv, c](CaseBuilder& b) {
                       const Output y = conv(b);
                       return Outputs{
                           graph::Elu(graph::Add(y, b.Normal(Shape({c.o}))))};
                     },
                     c.sum_length()});
  }
}

// The ops after a batch norm, and the form of gamma and beta.
struct BatchNormForm {
  const char* name;
  bool is_conditional, has_relu, has_residual;
};

// What BatchNorm and BatchNormApply take.
struct BatchNormInputs {
  BatchNormInputs(CaseBuilder& b, const Shape& shape, const BatchNormForm& form)
      : x(b.Normal(shape)),
        gamma(b.Normal(Channels(shape, form))),
        beta(b.Normal(Channels(shape, form))) {
    options.has_relu = form.has_relu;
    if (form.has_residual) options.residual = b.Normal(shape);
  }
  static Shape Channels(const Shape& shape, const BatchNormForm& form) {
    return form.is_conditional ? Shape({shape[0], shape[3]})
                               : Shape({shape[3]});
  }

  Output x, gamma, beta;
  graph::BatchNormOptions options;
};

// The ends of two residual blocks. The residual of the first is another norm's
// result; its own result goes to the second one's norm, by an op that changes
// nothing, and to its residual.
Outputs TwoBlocks(CaseBuilder& b, const Shape& x) {
  const BatchNormForm form{"", false, true, false};
  const BatchNormForm plain{"", false, false, false};
  const BatchNormInputs shortcut(b, x, plain);
  BatchNormInputs first(b, x, form);
  const auto norm = graph::BatchNorm(shortcut.x, shortcut.gamma, shortcut.beta,
                                     {.epsilon = 0.1});
  first.options.residual = norm.y;
  const Output y =
      graph::BatchNorm(first.x, first.gamma, first.beta, first.options).y;
  const Output copy = graph::AveragePool2d(y, {.window = 1, .stride = 1});
  const Shape channels({x[3]});
  return {graph::BatchNorm(copy, b.Normal(channels), b.Normal(channels),
                           {.has_relu = true, .residual = y})
              .y,
          norm.mean, norm.variance};
}

// The start of a ResNet. The pool's windows overlap.
Outputs NormAndPool(CaseBuilder& b, const Shape& x) {
  const BatchNormInputs in(b, x, {"", false, true, false});
  const auto norm = graph::BatchNorm(in.x, in.gamma, in.beta, in.options);
  return {graph::MaxPool2d(norm.y, {.window = 3, .stride = 2, .padding = 1}),
          norm.mean, norm.variance};
}

// Blocks of rows that are cut by examples and by threads.
void AddBatchNorms(Cases& cases) {
  for (const Shape& x : {Shape({3, 5, 7, 19}), Shape({5, 40, 40, 16})}) {
    const auto length = static_cast<double>(x[0] * x[1] * x[2]);
    for (const BatchNormForm& form :
         {BatchNormForm{"Relu", false, true, false},
          BatchNormForm{"Residual", false, false, true},
          BatchNormForm{"ReluResidual", false, true, true},
          BatchNormForm{"Conditional", true, false, false},
          BatchNormForm{"ConditionalRelu", true, true, false},
          BatchNormForm{"ConditionalReluResidual", true, true, true}}) {
      cases.push_back({fmt::format("BatchNorm{}_{}", form.name, x.ToString()),
                       [x, form](CaseBuilder& b) {
                         const BatchNormInputs in(b, x, form);
                         const auto norm = graph::BatchNorm(
                             in.x, in.gamma, in.beta, in.options);
                         return Outputs{norm.y, norm.mean, norm.variance};
                       },
                       length});
      cases.push_back(
          {fmt::format("BatchNormApply{}_{}", form.name, x.ToString()),
           [x, form](CaseBuilder& b) {
             const BatchNormInputs in(b, x, form);
             const Output parts = graph::Concat(
                 {graph::Reshape(graph::BatchMoments(in.x), {1, 2, x[3]}),
                  b.Uniform(Shape({2, 2, x[3]}), 0.5, 2)},
                 0);
             const Output moments = graph::CombineMoments(parts);
             return Outputs{graph::BatchNormApply(in.x, in.gamma, in.beta,
                                                  moments, in.options),
                            moments};
           },
           length});
    }
    cases.push_back({"BatchNormMaxPool_" + x.ToString(),
                     [x](CaseBuilder& b) { return NormAndPool(b, x); },
                     length});
    cases.push_back({"BatchNormTwoBlocks_" + x.ToString(),
                     [x](CaseBuilder& b) { return TwoBlocks(b, x); }, length});
  }
  cases.push_back({"SpectralNorm",
                   [](CaseBuilder& b) {
                     const Output w = b.Normal(Shape({19, 7, 3, 3}));
                     const Output u =
                         graph::Reshape(b.Distribution(1, 19), {19});
                     const auto norm = graph::SpectralNorm(w, u);
                     return Outputs{norm.y, norm.u, norm.v};
                   },
                   1197.0});
}

}  // namespace

void AddImageCases(std::vector<OpCase>& cases) {
  AddImages(cases);
  AddStacks(cases);
  AddPixelConvs(cases);
  AddBatchNorms(cases);
}

}  // namespace replicant::testing
