#include "learner/workloads/sngan_workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

#include "core/base/rng.h"
#include "learner/data/encode_png.h"

namespace replicant::learner {
namespace {

constexpr const char* kCyclePosition = "cycle_position";
// The grid of samples.
constexpr int64_t kMaxSampleRows = 20;
constexpr int64_t kSampleColumns = 8;

// Gives every replica the same latent vectors: one for each column of the grid,
// with the class of the row.
class SampleInput : public replicator::InputPipeline {
 public:
  SampleInput(int64_t rows, int64_t latent_size, int64_t num_classes,
              uint64_t seed)
      : latent_size_(latent_size),
        seed_(seed),
        specs_({{.name = "z",
                 .dtype = DType::kF32,
                 .shape = Shape({rows * kSampleColumns, latent_size})},
                {.name = "label",
                 .dtype = DType::kI32,
                 .shape = Shape({rows * kSampleColumns}),
                 .num_classes = num_classes}}) {}

  const std::vector<replicator::InputSpec>& specs() const override {
    return specs_;
  }
  NextResult Next(Clock::TimePoint /*deadline*/,
                  std::span<const MutableTensorView> batch) override {
    const std::span<float> z = batch[0].Span<float>();
    const std::span<int32_t> label = batch[1].Span<int32_t>();
    const auto size = static_cast<size_t>(latent_size_);
    for (size_t i = 0; i < label.size(); ++i) {
      const size_t column = i % kSampleColumns;
      RandomStream random(seed_, fmt::format("samples/{}", column));
      for (float& value : z.subspan(i * size, size)) {
        value = static_cast<float>(random.Normal());
      }
      label[i] = static_cast<int32_t>(i / kSampleColumns);
    }
    return NextResult::kOk;
  }

 private:
  const int64_t latent_size_;
  const uint64_t seed_;
  const std::vector<replicator::InputSpec> specs_;
};

}  // namespace

SnganWorkload::SnganWorkload(const models::sngan::SnganConfig& config,
                             int64_t batch_size, graph::Precision precision,
                             uint64_t seed,
                             std::unique_ptr<replicator::Replicator> replicator,
                             const data::ImageInput& images)
    : ImageWorkload(std::move(replicator),
                    {.batch_size = batch_size,
                     .side = config.side(),
                     .num_classes = config.num_classes,
                     .seed = seed,
                     .input = images},
                    precision),
      generator_begin_(ImageWorkload::replicator().accumulation_steps() *
                       config.discriminator_steps),
      cycle_length_(generator_begin_ +
                    ImageWorkload::replicator().accumulation_steps()),
      discriminator_step_(BuildUpdate(config, SnganNetwork::kDiscriminator)),
      generator_step_(BuildUpdate(config, SnganNetwork::kGenerator)),
      side_(config.side()),
      sample_interval_(config.sample_interval_steps),
      num_sample_rows_(std::min(config.num_classes, kMaxSampleRows)) {
  if (sample_interval_ > 0) BuildSamples(config, seed);
  for (const auto& [name, variable] : variables().variables()) {
    if (name.starts_with("generator/")) model_variables_.push_back(name);
  }
}

std::unique_ptr<replicator::Step> SnganWorkload::BuildUpdate(
    const models::sngan::SnganConfig& config, SnganNetwork network) {
  return BuildStep([&](replicator::ReplicaContext& replica,
                       const replicator::Inputs& inputs) {
    return BuildSnganStep(replica, inputs, config, network);
  });
}

void SnganWorkload::BuildSamples(const models::sngan::SnganConfig& config,
                                 uint64_t seed) {
  sample_input_ = replicator().MakeInput(
      [&](const replicator::InputContext&) {
        return std::make_unique<SampleInput>(
            num_sample_rows_, config.latent_size, config.num_classes, seed);
      },
      replicator::InputMode::kPerReplica);
  sample_step_ = replicator().Build(
      *sample_input_, [&](replicator::ReplicaContext& replica,
                          const replicator::Inputs& inputs) {
        return BuildSnganSamples(replica, inputs, config);
      });
}

void SnganWorkload::DrawSamples() {
  NextResult result = NextResult::kTimeout;
  while (result == NextResult::kTimeout) {
    result = sample_step_->Run(Clock::Real().Now() + std::chrono::seconds(1));
  }
  if (result != NextResult::kOk) return;
  std::vector<uint8_t> pixels;
  for (const float value : sample_step_->value("image").Span<float>()) {
    pixels.push_back(static_cast<uint8_t>(
        std::clamp(127.5F * (value + 1.0F) + 0.5F, 0.0F, 255.0F)));
  }
  const data::Image grid =
      data::Tile(pixels, side_, num_sample_rows_, kSampleColumns);
  // the learner of the first process takes them; others have one at most
  pictures_.clear();
  pictures_.push_back({.name = "samples",
                       .height = static_cast<int>(grid.size.height),
                       .width = static_cast<int>(grid.size.width),
                       .png = data::EncodePng(grid.size, grid.rgb)});
}

std::vector<Picture> SnganWorkload::TakePictures() {
  return std::exchange(pictures_, {});
}

NextResult SnganWorkload::Step(Clock::TimePoint deadline) {
  const NextResult aligned = AlignInputs(deadline);
  if (aligned != NextResult::kOk) return aligned;
  const bool is_generator = cycle_position_ >= generator_begin_;
  const NextResult result = RunStep(is_generator, deadline);
  if (result == NextResult::kOk) {
    cycle_position_ = (cycle_position_ + 1) % cycle_length_;
    // all processes have taken as many batches
    if (sample_interval_ > 0 && num_batches() % sample_interval_ == 0) {
      DrawSamples();
    }
  } else if (replicator().HasResults()) {
    // the input is paused, and steps of the other network are under way
    return RunStep(!is_generator, deadline);
  }
  return result;
}

NextResult SnganWorkload::RunStep(bool is_generator,
                                  Clock::TimePoint deadline) {
  replicator::Step& step =
      is_generator ? *generator_step_ : *discriminator_step_;
  const NextResult result = step.Run(deadline);
  if (result == NextResult::kOk) {
    num_new_steps_ = step.num_steps();
    (is_generator ? generator_loss_ : discriminator_loss_) =
        step.value("loss").Span<float>()[0];
  }
  return result;
}

std::vector<std::pair<std::string, double>> SnganWorkload::Scalars() const {
  std::vector<std::pair<std::string, double>> scalars;
  if (discriminator_loss_) {
    scalars.emplace_back("discriminator_loss", *discriminator_loss_);
  }
  if (generator_loss_) scalars.emplace_back("generator_loss", *generator_loss_);
  return scalars;
}

std::vector<std::string> SnganWorkload::ModelVariables() const {
  return model_variables_;
}

std::map<std::string, std::string> SnganWorkload::State() const {
  auto state = ImageWorkload::State();
  state[kCyclePosition] = std::to_string(cycle_position_);
  return state;
}

void SnganWorkload::Restore(const std::map<std::string, std::string>& state) {
  const int64_t position = CountIn(state, kCyclePosition);
  ImageWorkload::Restore(state);
  // a run may resume with another number of updates in a cycle
  cycle_position_ = position % cycle_length_;
}

}  // namespace replicant::learner
