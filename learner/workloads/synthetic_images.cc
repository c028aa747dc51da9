#include "learner/workloads/synthetic_images.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/rng.h"

namespace replicant::learner {
namespace {

// Amplitudes of the wave and of the noise, in grey levels.
constexpr float kAmplitude = 70.0F;
constexpr int kNoise = 32;

// The wave of a class.
struct Wave {
  double across, down;  // waves over the image
  std::array<float, 3> colors;
};

Wave WaveOf(uint64_t seed, int64_t label) {
  RandomStream random(seed, fmt::format("class/{}", label));
  Wave wave{.across = random.Uniform(-4.0, 4.0),
            .down = random.Uniform(0.0, 4.0),
            .colors = {}};
  for (float& color : wave.colors) {
    color = kAmplitude * static_cast<float>(random.Uniform(-1.0, 1.0));
  }
  return wave;
}

// sin and cos of 2 pi (waves * i / n + phase)
void FillTables(double waves, double phase, std::vector<float>& sine,
                std::vector<float>& cosine) {
  for (size_t i = 0; i < sine.size(); ++i) {
    const double angle =
        2.0 * std::numbers::pi *
        (waves * static_cast<double>(i) / static_cast<double>(sine.size()) +
         phase);
    sine[i] = static_cast<float>(std::sin(angle));
    cosine[i] = static_cast<float>(std::cos(angle));
  }
}

// Gives small random numbers, eight from each draw of the stream.
class Noise {
 public:
  explicit Noise(RandomStream random) : random_(random) {}

  // In [-kNoise, kNoise).
  float operator()() {
    if (left_ == 0) {
      bits_ = random_();
      left_ = 8;
    }
    const auto value = static_cast<int>(bits_ % (2 * kNoise)) - kNoise;
    bits_ >>= 8U;
    --left_;
    return static_cast<float>(value);
  }

 private:
  RandomStream random_;
  uint64_t bits_ = 0;
  int left_ = 0;
};

}  // namespace

SyntheticImages::SyntheticImages(const SyntheticImagesOptions& options,
                                 const replicator::InputContext& context)
    : options_(options),
      context_(context),
      rows_(context.PipelineBatchSize(options.batch_size)),
      first_row_(rows_ * context.pipeline_id),
      specs_({{.name = "image",
               .dtype = DType::kU8,
               .shape = Shape({rows_, options.side, options.side, 3})},
              {.name = "label",
               .dtype = DType::kI32,
               .shape = Shape({rows_}),
               .num_classes = options.num_classes}}),
      row_sin_(static_cast<size_t>(options.side)),
      row_cos_(row_sin_),
      column_sin_(row_sin_),
      column_cos_(row_sin_) {}

replicator::NextResult SyntheticImages::Next(
    Clock::TimePoint /*deadline*/, std::span<const MutableTensorView> batch) {
  is_drained_ = is_paused_;
  if (is_paused_) return replicator::NextResult::kTimeout;
  const int64_t number = position_ * context_.num_groups + context_.group_id;
  const std::span<uint8_t> images = batch[0].Span<uint8_t>();
  const size_t size = images.size() / static_cast<size_t>(rows_);
  for (int64_t row = 0; row < rows_; ++row) {
    const auto at = static_cast<size_t>(row);
    batch[1].Span<int32_t>()[at] =
        Draw(number * options_.batch_size + first_row_ + row,
             images.subspan(at * size, size));
  }
  ++position_;
  return replicator::NextResult::kOk;
}

int32_t SyntheticImages::Draw(int64_t number, std::span<uint8_t> image) {
  RandomStream random(options_.seed, fmt::format("image/{}", number));
  const int64_t label = random.UniformInt(options_.num_classes);
  const Wave wave = WaveOf(options_.seed, label);
  FillTables(wave.across, random.Uniform(), row_sin_, row_cos_);
  FillTables(wave.down, 0.0, column_sin_, column_cos_);
  Noise noise(random);
  size_t next = 0;
  for (size_t i = 0; i < column_sin_.size(); ++i) {
    for (size_t j = 0; j < row_sin_.size(); ++j) {
      // sin of the sum of both angles
      const float height =
          column_sin_[i] * row_cos_[j] + column_cos_[i] * row_sin_[j];
      for (const float color : wave.colors) {
        const float value = 127.5F + color * height + noise();
        image[next++] = static_cast<uint8_t>(std::clamp(value, 0.0F, 255.0F));
      }
    }
  }
  return static_cast<int32_t>(label);
}

}  // namespace replicant::learner
