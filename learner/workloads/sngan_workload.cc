#include "learner/workloads/sngan_workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <iterator>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/images/encode_png.h"
#include "base/rng.h"
#include "base/thread.h"
#include "learner/workloads/model_file.h"

namespace replicant::learner {
namespace {

constexpr const char* kCyclePosition = "cycle_position";
// The grid of samples.
constexpr int64_t kMaxSampleRows = 20;
constexpr int64_t kSampleColumns = 8;

// Images of an evaluation that are generated at once.
constexpr int64_t kEvaluationBatch = 64;

// Both updates of a joint step learn from the same batches.
std::vector<std::string> CountersOf(const models::sngan::SnganConfig& config) {
  if (config.joint_updates) return {"discriminator_step"};
  return {"discriminator_step", "generator_step"};
}

void FillNormal(uint64_t seed, const std::string& stream, std::span<float> z) {
  RandomStream random(seed, stream);
  for (float& value : z) value = static_cast<float>(random.Normal());
}

// Gives every replica of a group the same latent vectors, by a function that
// fills z [size, latent_size] and the labels [size].
class LatentInput : public replicator::InputPipeline {
 public:
  // Returns false at the end.
  using Fill = std::function<bool(std::span<float>, std::span<int32_t>)>;
  // The group whose turn it is; empty for the first that asks.
  using Turn = std::shared_ptr<std::optional<int>>;

  LatentInput(int64_t size, int64_t latent_size, int64_t num_classes, Fill fill,
              int group, Turn turn)
      : fill_(std::move(fill)),
        group_(group),
        turn_(std::move(turn)),
        specs_({{.name = "z",
                 .dtype = DType::kF32,
                 .shape = Shape({size, latent_size})},
                {.name = "label",
                 .dtype = DType::kI32,
                 .shape = Shape({size}),
                 .num_classes = num_classes}}) {}

  const std::vector<replicator::InputSpec>& specs() const override {
    return specs_;
  }
  NextResult Next(Clock::TimePoint /*deadline*/,
                  std::span<const MutableTensorView> batch) override {
    if (turn_->value_or(group_) != group_) return NextResult::kEnd;
    *turn_ = group_;
    return fill_(batch[0].Span<float>(), batch[1].Span<int32_t>())
               ? NextResult::kOk
               : NextResult::kEnd;
  }

 private:
  const Fill fill_;
  const int group_;
  const Turn turn_;
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
                     .input = images,
                     .counters = CountersOf(config)},
                    precision),
      config_(config),
      generator_begin_(ImageWorkload::replicator().accumulation_steps() *
                       config.discriminator_steps),
      cycle_length_(generator_begin_ +
                    ImageWorkload::replicator().accumulation_steps()),
      side_(config.side()),
      sample_interval_(config.sample_interval_steps),
      evaluation_interval_(config.evaluation_interval_steps),
      num_sample_rows_(std::min(config.num_classes, kMaxSampleRows)) {
  if (config.joint_updates) {
    joint_step_ = BuildStep(JointSnganPhases(config), "joint");
  } else {
    discriminator_step_ = BuildUpdate(config, SnganNetwork::kDiscriminator);
    generator_step_ = BuildUpdate(config, SnganNetwork::kGenerator);
  }
  if (sample_interval_ > 0) BuildGrid(config, seed);
  // an export, say, needs neither images nor features
  if (images.is_read && !config.evaluation_features.empty()) {
    BuildEvaluation(config, seed, images);
  }
}

std::unique_ptr<replicator::Step> SnganWorkload::BuildUpdate(
    const models::sngan::SnganConfig& config, SnganNetwork network) {
  return BuildStep(
      {[&](replicator::ReplicaContext& replica,
           const replicator::Inputs& inputs) {
        return BuildSnganStep(replica, inputs, config, network);
      }},
      network == SnganNetwork::kGenerator ? "generator" : "discriminator");
}

SnganWorkload::Sampler SnganWorkload::BuildSampler(
    const models::sngan::SnganConfig& config, int64_t size,
    std::function<bool(std::span<float>, std::span<int32_t>)> fill) {
  Sampler sampler;
  sampler.input = replicator().MakeInput(
      [&](const replicator::InputContext& context) {
        return std::make_unique<LatentInput>(size, config.latent_size,
                                             config.num_classes, fill,
                                             context.group_id, sampler.turn);
      },
      replicator::InputMode::kPerReplica);
  sampler.step = replicator().Build(
      *sampler.input,
      [&](replicator::ReplicaContext& replica,
          const replicator::Inputs& inputs) {
        return replicator::StepOutputs{
            .values = {
                {"image", BuildSnganSamples(replica.graph(), inputs.at("z"),
                                            inputs.at("label"), config)}}};
      },
      {.name = "samples"});
  return sampler;
}

std::vector<uint8_t> SnganWorkload::Sampler::Run() const {
  turn->reset();
  NextResult result = NextResult::kTimeout;
  while (result == NextResult::kTimeout) {
    result = step->Run(Clock::Real().Now() + std::chrono::seconds(1));
  }
  std::vector<uint8_t> pixels;
  if (result != NextResult::kOk) return pixels;
  const std::span<const float> image = step->value("image").Span<float>();
  pixels.reserve(image.size());
  for (const float value : image) {
    pixels.push_back(static_cast<uint8_t>(
        std::clamp(127.5F * (value + 1.0F) + 0.5F, 0.0F, 255.0F)));
  }
  return pixels;
}

void SnganWorkload::BuildGrid(const models::sngan::SnganConfig& config,
                              uint64_t seed) {
  // a latent vector for each column of the grid, and a class for each row
  grid_ = BuildSampler(
      config, num_sample_rows_ * kSampleColumns,
      [seed](std::span<float> z, std::span<int32_t> label) {
        const size_t latent_size = z.size() / label.size();
        for (size_t i = 0; i < label.size(); ++i) {
          FillNormal(seed, fmt::format("samples/{}", i % kSampleColumns),
                     z.subspan(i * latent_size, latent_size));
          label[i] = static_cast<int32_t>(i / kSampleColumns);
        }
        return true;
      });
}

void SnganWorkload::BuildEvaluation(const models::sngan::SnganConfig& config,
                                    uint64_t seed,
                                    const data::ImageInput& images) {
  if (!images.open) {
    throw ConfigError(
        "sngan.evaluation_features: images.source synthetic has no images to "
        "compare with; allowed here: empty");
  }
  std::unique_ptr<FeatureExtractor> extractor;
  if (replicator().process_id() == 0) {
    const std::filesystem::path weights = config.evaluation_features;
    extractor = std::make_unique<FeatureExtractor>(
        weights,
        config.evaluation_network.empty()
            ? std::filesystem::path(weights).replace_extension(".yaml")
            : std::filesystem::path(config.evaluation_network),
        static_cast<int>(CpuSet::OfThisThread().size()));
  }
  scores_.emplace(
      std::move(extractor), images.open(data::Split::kTrain),
      ImageScores::Options{.num_images = config.num_evaluation_images,
                           .side = side_,
                           .augmentation = images.config.augmentation});
  evaluation_ = BuildSampler(
      config, kEvaluationBatch,
      [this, seed](std::span<float> z, std::span<int32_t> label) {
        const size_t latent_size = z.size() / label.size();
        std::ranges::fill(label, 0);
        std::ranges::copy(evaluation_labels_, label.begin());
        for (size_t i = 0; i < evaluation_labels_.size(); ++i) {
          FillNormal(seed,
                     fmt::format("evaluation/{}",
                                 first_evaluated_ + static_cast<int64_t>(i)),
                     z.subspan(i * latent_size, latent_size));
        }
        return !evaluation_labels_.empty();
      });
}

std::vector<std::pair<std::string, double>> SnganWorkload::Evaluate() {
  if (!scores_) return {};
  auto scores = scores_->Score(
      kEvaluationBatch,
      [&](int64_t first, std::span<const int32_t> labels) {
        first_evaluated_ = first;
        // without labels its input ends, which all processes see
        evaluation_labels_.assign(labels.begin(), labels.end());
        std::vector<uint8_t> rgb = evaluation_.Run();
        if (rgb.empty()) return rgb;
        rgb.resize(labels.size() * static_cast<size_t>(side_ * side_ * 3));
        return rgb;
      },
      [this] { return should_stop(); });
  if (!scores.empty()) evaluation_scalars_ = scores;
  return scores;
}

void SnganWorkload::DrawGrid() {
  const std::vector<uint8_t> pixels = grid_.Run();
  if (pixels.empty()) return;
  // the learner of the first process takes them; others have one at most
  pictures_.clear();
  pictures_.push_back(MakePicture(
      "samples", data::Tile(pixels, side_, num_sample_rows_, kSampleColumns)));
}

std::vector<Picture> SnganWorkload::TakePictures() {
  std::vector<Picture> pictures = ImageWorkload::TakePictures();
  std::ranges::move(std::exchange(pictures_, {}), std::back_inserter(pictures));
  return pictures;
}

NextResult SnganWorkload::Step(Clock::TimePoint deadline) {
  const NextResult aligned = AlignInputs(deadline);
  if (aligned != NextResult::kOk) return aligned;
  const int64_t num_batches_before = num_batches();
  if (joint_step_) {
    const NextResult result = RunJointStep(deadline);
    if (result == NextResult::kOk) MakeWhatIsDue(num_batches_before);
    return result;
  }
  const bool is_generator = cycle_position_ >= generator_begin_;
  const NextResult result = RunStep(is_generator, deadline);
  if (result == NextResult::kOk) {
    cycle_position_ = (cycle_position_ + 1) % cycle_length_;
    MakeWhatIsDue(num_batches_before);
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

NextResult SnganWorkload::RunJointStep(Clock::TimePoint deadline) {
  const NextResult result = joint_step_->Run(deadline);
  if (result != NextResult::kOk) return result;
  num_new_steps_ = joint_step_->num_steps();
  discriminator_loss_ =
      joint_step_->value("discriminator_loss").Span<float>()[0];
  // its part has its batches with the last one of an update
  const int64_t count = replicator().accumulation_steps();
  cycle_position_ = (cycle_position_ + 1) % count;
  if (generator_loss_ || cycle_position_ == 0) {
    generator_loss_ = joint_step_->value("generator_loss").Span<float>()[0];
  }
  return result;
}

void SnganWorkload::MakeWhatIsDue(int64_t num_batches_before) {
  // all processes of a group have taken as many batches; with several groups a
  // step may pass a multiple of the interval
  const auto is_due = [&](int64_t interval) {
    return interval > 0 &&
           num_batches() / interval > num_batches_before / interval;
  };
  if (is_due(sample_interval_)) DrawGrid();
  if (is_due(evaluation_interval_)) Evaluate();
}

std::vector<std::pair<std::string, double>> SnganWorkload::Scalars() const {
  std::vector<std::pair<std::string, double>> scalars;
  if (discriminator_loss_) {
    scalars.emplace_back("discriminator_loss", *discriminator_loss_);
  }
  if (generator_loss_) scalars.emplace_back("generator_loss", *generator_loss_);
  scalars.insert(scalars.end(), evaluation_scalars_.begin(),
                 evaluation_scalars_.end());
  return scalars;
}

std::vector<std::pair<std::string, graph::Output>> SnganWorkload::BuildModel(
    graph::Graph& graph, int64_t batch_size) const {
  const graph::Output z =
      graph.Input("z", DType::kF32, Shape({batch_size, config_.latent_size}));
  const graph::Output label =
      graph.Input("label", DType::kI32, Shape({batch_size}));
  return {{"image", BuildSnganSamples(graph, z, label, config_)}};
}

std::vector<std::string> SnganWorkload::ModelVariables() {
  std::vector<std::string> names;
  for (const auto& [name, variable] : variables().variables()) {
    if (name.starts_with("generator/") ||
        name.starts_with("average/generator/")) {
      names.push_back(name);
    }
  }
  return AveragesIn(std::move(names));
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
  // the gradients of a part of an update are lost, and it begins anew
  cycle_position_ -= cycle_position_ % replicator().accumulation_steps();
}

}  // namespace replicant::learner
