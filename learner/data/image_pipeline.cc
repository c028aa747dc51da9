#include "learner/data/image_pipeline.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace replicant::data {
namespace {

std::vector<replicator::InputSpec> SpecsOf(const ImagePipelineOptions& options,
                                           int64_t rows) {
  std::vector<replicator::InputSpec> specs = {
      {.name = "image",
       .dtype = DType::kU8,
       .shape = Shape({rows, options.side, options.side, 3})},
      {.name = "label",
       .dtype = DType::kI32,
       .shape = Shape({rows}),
       .num_classes = options.num_classes}};
  if (!options.is_training) {
    specs.push_back(
        {.name = "weight", .dtype = DType::kF32, .shape = Shape({rows})});
  }
  return specs;
}

// " (a, b)"; empty if there are none.
std::string NamesText(const std::vector<std::string>& names) {
  return names.empty() ? "" : fmt::format(" ({})", ListNames(names));
}

}  // namespace

ImagePipeline::ImagePipeline(const ImagePipelineOptions& options,
                             const replicator::InputContext& context)
    : options_(options),
      context_(context),
      rows_(context.PipelineBatchSize(options.batch_size)),
      first_row_(rows_ * context.pipeline_id),
      specs_(SpecsOf(options, rows_)),
      order_(options.source->BlockSizes(), options.seed) {
  if (options_.source->num_classes() > options_.num_classes) {
    throw InvalidArgument(fmt::format(
        "images: the source has {} classes{}, the network {}",
        options_.source->num_classes(),
        NamesText(options_.source->class_names()), options_.num_classes));
  }
  slots_.resize(options_.num_threads > 0 ? static_cast<size_t>(std::max(
                                               options_.num_batches_ahead, 1))
                                         : 0);
  const auto rows = static_cast<size_t>(rows_);
  for (Slot& slot : slots_) {
    slot.image.resize(rows *
                      static_cast<size_t>(options_.side * options_.side * 3));
    slot.label.resize(rows);
    slot.weight.resize(options_.is_training ? 0 : rows);
  }
}

ImagePipeline::~ImagePipeline() { StopThreads(); }

int64_t ImagePipeline::num_batches() const {
  return (options_.source->size() + options_.batch_size - 1) /
         options_.batch_size;
}

void ImagePipeline::set_position(int64_t position) {
  StopThreads();
  position_ = position;
}

replicator::NextResult ImagePipeline::Next(
    Clock::TimePoint deadline, std::span<const MutableTensorView> batch) {
  is_drained_ = is_paused_;
  if (is_paused_) return replicator::NextResult::kTimeout;
  if (!options_.is_training && position_ >= num_batches()) {
    return replicator::NextResult::kEnd;
  }
  const Rows out{.image = batch[0].Span<uint8_t>(),
                 .label = batch[1].Span<int32_t>(),
                 .weight = options_.is_training ? std::span<float>()
                                                : batch[2].Span<float>()};
  const Clock::TimePoint start = Clock::Real().Now();
  bool is_there = true;
  if (options_.num_threads == 0) {
    if (!reader_) reader_ = options_.source->MakeReader();
    for (int64_t row = 0; row < rows_; ++row) {
      ReadRow(*reader_, position_, row, out);
    }
  } else {
    if (threads_.empty()) StartThreads();
    is_there = Await(deadline);
  }
  wait_s_ += ToSeconds(Clock::Real().Now() - start);
  if (!is_there) return replicator::NextResult::kTimeout;
  if (options_.num_threads > 0) {
    Slot& slot = SlotOf(position_);
    std::ranges::copy(slot.image, out.image.begin());
    std::ranges::copy(slot.label, out.label.begin());
    std::ranges::copy(slot.weight, out.weight.begin());
    const MutexLock lock(mutex_);
    slot.num_done = 0;
    ++num_taken_;
    has_work_.NotifyAll();
  }
  ++position_;
  return replicator::NextResult::kOk;
}

void ImagePipeline::ReadRow(ImageReader& reader, int64_t number, int64_t row,
                            const Rows& rows) {
  const int64_t batch = number * context_.num_groups + context_.group_id;
  const int64_t place = batch * options_.batch_size + first_row_ + row;
  if (options_.is_training) {
    ReadTrainingRow(reader, place, row, rows);
  } else {
    ReadEvaluationRow(reader, place, row, rows);
  }
}

std::span<uint8_t> ImagePipeline::ImageOf(int64_t row, const Rows& rows) const {
  const auto size = static_cast<size_t>(options_.side * options_.side * 3);
  return rows.image.subspan(static_cast<size_t>(row) * size, size);
}

void ImagePipeline::ReadTrainingRow(ImageReader& reader, int64_t place,
                                    int64_t row, const Rows& rows) {
  const View view(
      options_.augmentation,
      RandomStream(options_.seed, fmt::format("images/view-{}", place)));
  for (int64_t i = 0;; ++i) {
    const int64_t index = order_.At(place + i);
    try {
      rows.label[static_cast<size_t>(row)] =
          reader.Read(index, view, options_.side, ImageOf(row, rows));
      return;
    } catch (const DamagedImage& error) {
      AddUnreadable(index, error);
      if (i + 1 == kMaxUnreadable) {
        throw IoError(fmt::format("{} images in turn cannot be read: {}",
                                  kMaxUnreadable, error.what()));
      }
    }
  }
}

void ImagePipeline::ReadEvaluationRow(ImageReader& reader, int64_t place,
                                      int64_t row, const Rows& rows) {
  const auto at = static_cast<size_t>(row);
  rows.weight[at] = 0.0F;
  rows.label[at] = 0;
  if (place < options_.source->size()) {
    try {
      rows.label[at] = reader.Read(place, View(options_.evaluation_crop),
                                   options_.side, ImageOf(row, rows));
      rows.weight[at] = 1.0F;
      return;
    } catch (const DamagedImage& error) {
      AddUnreadable(place, error);
    }
  }
  std::ranges::fill(ImageOf(row, rows), uint8_t{0});
}

void ImagePipeline::AddUnreadable(int64_t index, const DamagedImage& error) {
  bool is_new = false;
  {
    const MutexLock lock(mutex_);
    is_new = unreadable_.insert(index).second;
  }
  if (is_new) spdlog::warn("image left out: {}", error.what());
}

void ImagePipeline::StartThreads() {
  {
    const MutexLock lock(mutex_);
    is_stopped_ = false;
    next_batch_ = num_taken_ = position_;
    next_row_ = 0;
    for (Slot& slot : slots_) slot.num_done = 0;
  }
  for (int i = 0; i < options_.num_threads; ++i) {
    threads_.push_back(std::make_unique<Thread>(
        fmt::format("images-{}", i),
        [this](const Thread::StopToken&) { ReadAhead(); }));
  }
}

void ImagePipeline::StopThreads() {
  {
    const MutexLock lock(mutex_);
    is_stopped_ = true;
    has_work_.NotifyAll();
  }
  threads_.clear();
}

bool ImagePipeline::HasWork() const {
  return next_batch_ < num_taken_ + static_cast<int64_t>(slots_.size()) &&
         (options_.is_training || next_batch_ < num_batches());
}

void ImagePipeline::ReadAhead() {
  const std::unique_ptr<ImageReader> reader = options_.source->MakeReader();
  while (true) {
    int64_t number = 0;
    int64_t row = 0;
    {
      const MutexLock lock(mutex_);
      while (!is_stopped_ && !HasWork()) has_work_.Wait(mutex_);
      if (is_stopped_) return;
      number = next_batch_;
      row = next_row_++;
      if (next_row_ == rows_) {
        next_row_ = 0;
        ++next_batch_;
      }
    }
    std::exception_ptr error;
    try {
      ReadRow(*reader, number, row, SlotOf(number).rows());
    } catch (...) {
      error = std::current_exception();
    }
    const MutexLock lock(mutex_);
    if (error && !error_) error_ = error;
    if (++SlotOf(number).num_done == rows_ || error) has_batch_.NotifyAll();
  }
}

bool ImagePipeline::Await(Clock::TimePoint deadline) {
  const MutexLock lock(mutex_);
  const bool is_there = Clock::Real().WaitUntil(
      mutex_, has_batch_, deadline, [this]() NO_THREAD_SAFETY_ANALYSIS {
        return error_ || SlotOf(position_).num_done == rows_;
      });
  if (error_) std::rethrow_exception(error_);
  return is_there;
}

}  // namespace replicant::data
