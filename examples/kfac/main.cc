// kfac FILE.yaml: learns a product by K-FAC, on as many replicas as the file
// says, e.g. {strategy: in_graph, replicas: 2}.
#include <cmath>
#include <cstdio>
#include <exception>

#include "base/config/load.h"
#include "kfac.h"
#include "replicator/make_replicator.h"

using namespace replicant;              // NOLINT
using namespace replicant::replicator;  // NOLINT

namespace {

// y = x_0 x_1 at points of the square that a Halton sequence visits; x_1 is
// fifty times as large as x_0, which gradients alone learn slowly from.
class Products : public InputPipeline {
 public:
  explicit Products(const InputContext& context)
      : rows_(context.PipelineBatchSize(128)),
        first_(context.pipeline_id * rows_),
        specs_{{"x", DType::kF32, Shape({rows_, 2})},
               {"y", DType::kF32, Shape({rows_, 1})}} {}

  const std::vector<InputSpec>& specs() const override { return specs_; }
  NextResult Next(Clock::TimePoint /*deadline*/,
                  std::span<const MutableTensorView> batch) override {
    for (int64_t row = 0; row < rows_; ++row) {
      const auto i = static_cast<size_t>(row);
      const int64_t point = 128 * step_ + first_ + row + 1;
      const double a = 2.0 * Radical(point, 2) - 1.0;
      const double b = 2.0 * Radical(point, 3) - 1.0;
      batch[0].Span<float>()[2 * i] = static_cast<float>(0.1 * a);
      batch[0].Span<float>()[2 * i + 1] = static_cast<float>(5.0 * b);
      batch[1].Span<float>()[i] =
          static_cast<float>(std::tanh(2.0 * a) - 0.5 * b);
    }
    ++step_;
    return NextResult::kOk;
  }

 private:
  static double Radical(int64_t i, int64_t base) {
    double value = 0.0;
    for (double digit = 1.0 / base; i > 0; i /= base, digit /= base) {
      value += digit * static_cast<double>(i % base);
    }
    return value;
  }

  const int64_t rows_, first_;
  const std::vector<InputSpec> specs_;
  int64_t step_ = 0;
};

}  // namespace

int main(int /*argc*/, char** argv) try {
  const auto config =
      config::Load<ReplicationConfig>(config::Document::FromFile(argv[1]))
          .config;
  const auto replicator = MakeReplicator(config, /*seed=*/1);
  const auto input = replicator->MakeInput([](const InputContext& context) {
    return std::make_unique<Products>(context);
  });
  const auto step = replicator->Build(*input, KfacStep({}));
  for (int i = 0; i < 300; ++i) {
    while (step->Run(Clock::Real().Now() + std::chrono::seconds(1)) !=
           NextResult::kOk) {
    }
  }
  std::printf("loss %.6f\n", step->value("loss").Span<float>()[0]);
  replicator->Stop();
} catch (const std::exception& e) {
  std::fprintf(stderr, "kfac: %s\n", e.what());
  return 1;
}
