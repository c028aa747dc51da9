#include "engine/nn/initializers.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"

namespace replicant::nn {
namespace {

// Sets element i to next(), in order.
template <typename Next>
void Fill(MutableTensorView view, const Next& next) {
  switch (view.dtype()) {
    case DType::kF32:
      for (float& x : view.Span<float>()) x = static_cast<float>(next());
      return;
    case DType::kF64:
      for (double& x : view.Span<double>()) x = next();
      return;
    case DType::kBF16:
      for (BFloat16& x : view.Span<BFloat16>()) {
        x = BFloat16(static_cast<float>(next()));
      }
      return;
    default:
      break;
  }
  REPLICANT_CHECK(false, "{} has no random first value",
                  DTypeName(view.dtype()));
}

double FanIn(const Shape& shape) {
  REPLICANT_CHECK(shape.rank() >= 2, "{} is not the shape of a weight",
                  shape.ToString());
  return static_cast<double>(shape.WithoutLeading().num_elements());
}

double FanOut(const Shape& shape) {
  const auto kernel = FanIn(shape) / static_cast<double>(shape[1]);
  return static_cast<double>(shape[0]) * kernel;
}

double Dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// `count` orthonormal vectors of `size` >= count elements.
std::vector<std::vector<double>> OrthonormalVectors(RandomStream& random,
                                                    size_t count, size_t size) {
  std::vector<std::vector<double>> vectors;
  while (vectors.size() < count) {
    std::vector<double> v(size);
    for (double& x : v) x = random.Normal();
    // the second round removes the rounding errors of the first
    for (int round = 0; round < 2; ++round) {
      for (const std::vector<double>& other : vectors) {
        const double along = Dot(v, other);
        for (size_t i = 0; i < size; ++i) v[i] -= along * other[i];
      }
    }
    const double norm = std::sqrt(Dot(v, v));
    // draw again if v lies in the span of the others
    if (norm < 1e-8) continue;
    for (double& x : v) x /= norm;
    vectors.push_back(std::move(v));
  }
  return vectors;
}

}  // namespace

Initializer Constant(double value) {
  return [value](RandomStream& /*random*/, MutableTensorView view) {
    Fill(view, [value] { return value; });
  };
}

Initializer Uniform(double low, double high) {
  return [low, high](RandomStream& random, MutableTensorView view) {
    Fill(view, [&] { return random.Uniform(low, high); });
  };
}

Initializer Normal(double mean, double standard_deviation) {
  return
      [mean, standard_deviation](RandomStream& random, MutableTensorView view) {
        Fill(view, [&] { return mean + standard_deviation * random.Normal(); });
      };
}

Initializer Orthogonal(double gain) {
  return [gain](RandomStream& random, MutableTensorView view) {
    const auto columns = static_cast<size_t>(FanIn(view.shape()));
    const auto rows = static_cast<size_t>(view.shape()[0]);
    const auto vectors = OrthonormalVectors(random, std::min(rows, columns),
                                            std::max(rows, columns));
    size_t next = 0;
    Fill(view, [&] {
      const size_t row = next / columns;
      const size_t column = next % columns;
      ++next;
      return gain *
             (rows <= columns ? vectors[row][column] : vectors[column][row]);
    });
  };
}

Initializer HeNormal() {
  return [](RandomStream& random, MutableTensorView view) {
    Normal(0.0, std::sqrt(2.0 / FanIn(view.shape())))(random, view);
  };
}

Initializer HeNormalFanOut() {
  return [](RandomStream& random, MutableTensorView view) {
    Normal(0.0, std::sqrt(2.0 / FanOut(view.shape())))(random, view);
  };
}

Initializer GlorotUniform() {
  return [](RandomStream& random, MutableTensorView view) {
    const double bound =
        std::sqrt(6.0 / (FanIn(view.shape()) + FanOut(view.shape())));
    Uniform(-bound, bound)(random, view);
  };
}

Initializer PyTorchWeight() {
  return [](RandomStream& random, MutableTensorView view) {
    const double bound = 1.0 / std::sqrt(FanIn(view.shape()));
    Uniform(-bound, bound)(random, view);
  };
}

Initializer PyTorchBias(int64_t fan_in) {
  REPLICANT_CHECK_GT(fan_in, 0);
  const double bound = 1.0 / std::sqrt(static_cast<double>(fan_in));
  return Uniform(-bound, bound);
}

Initializer UnitVector() {
  return [](RandomStream& random, MutableTensorView view) {
    std::vector<double> x(static_cast<size_t>(view.shape().num_elements()));
    for (double& value : x) value = random.Normal();
    const double norm = std::sqrt(Dot(x, x));
    size_t next = 0;
    Fill(view, [&] { return x[next++] / norm; });
  };
}

namespace {

// Replaces every value x of `initializer`, at index i, by change(x, i). It
// works in double, so that the change costs one rounding.
template <typename Change>
Initializer Changed(Initializer initializer, Change change) {
  return [initializer = std::move(initializer), change](
             RandomStream& random, MutableTensorView view) {
    HostTensor values(DType::kF64, view.shape());
    initializer(random, values.mutable_view());
    const auto elements = values.MutableSpan<double>();
    size_t next = 0;
    Fill(view, [&] {
      const size_t i = next++;
      return change(elements[i], static_cast<double>(i));
    });
  };
}

}  // namespace

Initializer Scaled(Initializer initializer, double factor) {
  return Changed(std::move(initializer),
                 [factor](double x, double /*i*/) { return factor * x; });
}

Initializer PlusRamp(Initializer initializer, double slope) {
  return Changed(std::move(initializer),
                 [slope](double x, double i) { return x + slope * i; });
}

}  // namespace replicant::nn
