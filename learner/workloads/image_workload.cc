#include "learner/workloads/image_workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <utility>

#include "base/error.h"
#include "base/images/encode_png.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/shape_ops.h"
#include "engine/nn/optimizers.h"
#include "learner/data/image_pipeline.h"
#include "learner/workloads/synthetic_images.h"

namespace replicant::learner {
namespace {

constexpr const char* kBatches = "batches";

// Gives the place of the first process in every row: position of the images and
// position in the cycle.
class PlaceInput : public replicator::InputPipeline {
 public:
  using Place = std::pair<int64_t, int64_t>;

  PlaceInput(std::function<Place()> place,
             const replicator::InputContext& context)
      : place_(std::move(place)),
        specs_({{.name = "place",
                 .dtype = DType::kI64,
                 .shape = Shape({context.num_replicas, 2})}}) {}

  const std::vector<replicator::InputSpec>& specs() const override {
    return specs_;
  }
  NextResult Next(Clock::TimePoint /*deadline*/,
                  std::span<const MutableTensorView> batch) override {
    const auto [position, cycle_position] = place_();
    const std::span<int64_t> rows = batch[0].Span<int64_t>();
    for (size_t i = 0; i < rows.size(); i += 2) {
      rows[i] = position;
      rows[i + 1] = cycle_position;
    }
    return NextResult::kOk;
  }

 private:
  const std::function<Place()> place_;
  const std::vector<replicator::InputSpec> specs_;
};

std::unique_ptr<data::PositionedPipeline> MakeImages(
    const ImageOptions& images,
    const std::shared_ptr<const data::ImageSource>& source,
    const replicator::InputContext& context) {
  if (source == nullptr) {
    return std::make_unique<SyntheticImages>(
        SyntheticImagesOptions{.batch_size = images.batch_size,
                               .side = images.side,
                               .num_classes = images.num_classes,
                               .seed = images.seed},
        context);
  }
  return std::make_unique<data::ImagePipeline>(
      data::ImagePipelineOptions{
          .source = source,
          .batch_size = images.batch_size,
          .side = images.side,
          .num_classes = images.num_classes,
          .seed = images.seed,
          .augmentation = images.input.config.augmentation,
          .num_threads = images.input.config.threads,
          .num_batches_ahead = images.input.config.batches_ahead},
      context);
}

}  // namespace

ImageWorkload::ImageWorkload(std::unique_ptr<replicator::Replicator> replicator,
                             const ImageOptions& images,
                             graph::Precision precision)
    : precision_(precision), replicator_(std::move(replicator)) {
  std::shared_ptr<const data::ImageSource> source;
  if (images.input.open) {
    source = images.input.open(data::Split::kTrain);
    dataset_size_ = source->size();
    batch_size_ = images.batch_size;
  }
  input_ = replicator_->MakeInput([&](const replicator::InputContext& context) {
    auto pipeline = std::make_unique<FirstBatch>(
        MakeImages(images, source, context), &num_batches_left_);
    images_[context.group_id] = pipeline.get();
    num_groups_ = context.num_groups;
    num_pipelines_ = context.num_pipelines;
    return pipeline;
  });
  is_aligned_ = num_pipelines_ == 1 && images_.contains(0);
  // all processes of the run build it, or none
  const bool is_one_process =
      num_pipelines_ == 1 && static_cast<int>(images_.size()) == num_groups_;
  if (!is_one_process) BuildPlace(images.counters);
}

void ImageWorkload::BuildPlace(const std::vector<std::string>& counters) {
  place_input_ = replicator_->MakeInput(
      [this](const replicator::InputContext& context) {
        return std::make_unique<PlaceInput>(
            [this] {
              return std::pair(images_.begin()->second->position(),
                               cycle_position());
            },
            context);
      },
      replicator::InputMode::kSingle);
  place_step_ = replicator_->Build(
      *place_input_,
      [&](replicator::ReplicaContext& replica,
          const replicator::Inputs& inputs) {
        graph::Graph& graph = replica.graph();
        graph::Output updates = graph.Scalar(0.0, DType::kI64);
        for (const std::string& counter : counters) {
          updates =
              graph::Add(updates, nn::AddStepCounter(graph, counter).value);
        }
        return replicator::StepOutputs{
            .values = {{"place", graph::Identity(inputs.at("place"))},
                       {"updates", updates}}};
      },
      {.name = "place"});
}

NextResult ImageWorkload::AlignInputs(Clock::TimePoint deadline) {
  if (is_aligned_) return NextResult::kOk;
  const NextResult result = place_step_->Run(deadline);
  if (result != NextResult::kOk) return result;
  const auto place = place_step_->value("place").Span<int64_t>();
  const int64_t num_updates = place_step_->value("updates").Span<int64_t>()[0];
  for (const auto& [group, images] : images_) {
    // only the first group has the process that has loaded a checkpoint
    const int64_t position =
        group == 0 ? place[0]
                   : PositionOf(group, num_updates *
                                           replicator_->accumulation_steps());
    if (images->position() != position) images->set_position(position);
  }
  set_cycle_position(place[1]);
  is_aligned_ = true;
  return NextResult::kOk;
}

double ImageWorkload::WaitSeconds() const {
  double sum = 0.0;
  for (const auto& [group, images] : images_) sum += images->WaitSeconds();
  return sum;
}

Picture ImageWorkload::MakePicture(const std::string& name,
                                   const data::Image& image) {
  return {.name = name,
          .height = static_cast<int>(image.size.height),
          .width = static_cast<int>(image.size.width),
          .png = data::EncodePng(image.size, image.rgb)};
}

std::vector<Picture> ImageWorkload::TakePictures() {
  if (images_.empty()) return {};
  const auto grid = images_.begin()->second->Take();
  if (!grid) return {};
  return {MakePicture("batch", *grid)};
}

int64_t ImageWorkload::num_batches() const {
  if (images_.empty()) return 0;
  int64_t sum = 0;
  for (const auto& [group, images] : images_) sum += images->position();
  // assume that groups of other processes have taken as many
  return sum * num_groups_ / static_cast<int64_t>(images_.size());
}

std::optional<double> ImageWorkload::NumEpochs() const {
  if (dataset_size_ == 0) return std::nullopt;
  return static_cast<double>(num_batches() * batch_size_) /
         static_cast<double>(dataset_size_);
}

std::map<std::string, std::string> ImageWorkload::State() const {
  return {{kBatches, std::to_string(num_batches())}};
}

void ImageWorkload::Restore(const std::map<std::string, std::string>& state) {
  const int64_t num_batches = CountIn(state, kBatches);
  for (const auto& [group, images] : images_) {
    images->set_position(PositionOf(group, num_batches));
  }
}

void ImageWorkload::Batches::SetPaused(bool is_paused) {
  for (const auto& [group, images] : workload_.images_) {
    images->SetPaused(is_paused);
  }
}

bool ImageWorkload::Batches::IsDrained() const {
  return !workload_.replicator_->HasResults() &&
         std::ranges::all_of(workload_.images_, [](const auto& entry) {
           return entry.second->is_drained();
         });
}

int64_t ImageWorkload::CountIn(const std::map<std::string, std::string>& state,
                               const std::string& key) {
  const auto found = state.find(key);
  if (found == state.end()) {
    throw InvalidArgument(fmt::format("checkpoint: no {}", key));
  }
  const std::string& text = found->second;
  const char* end = text.data() + text.size();
  int64_t count = -1;
  const auto [stop, error] = std::from_chars(text.data(), end, count);
  if (error != std::errc() || stop != end || count < 0) {
    throw InvalidArgument(fmt::format(
        "checkpoint: {}: want a whole number >= 0, got '{}'", key, text));
  }
  return count;
}

}  // namespace replicant::learner
