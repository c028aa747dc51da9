#include "replay/prior/mixed_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/fs.h"
#include "replay/checkpoint/checkpoint_file.h"

namespace replicant::replay {
namespace {

void CopyFirst(const HostBuffer& from, HostBuffer& to) {
  if (from.size_bytes() == 0) return;
  std::memcpy(to.bytes().data(), from.bytes().data(), from.size_bytes());
}

template <typename T>
void CopyFirst(const std::vector<T>& from, std::vector<T>& to) {
  std::ranges::copy(from, to.begin());
}

}  // namespace

MixedSource::MixedSource(BatchSource* acted, std::unique_ptr<PriorReplay> prior,
                         const MixedSourceOptions& options)
    : acted_(*acted), prior_(std::move(prior)), options_(options) {
  if (options_.prior_rows < 1 || options_.prior_rows > options_.batch_size) {
    throw InvalidArgument(
        fmt::format("MixedSource: {} rows of prior data in a batch of {}",
                    options_.prior_rows, options_.batch_size));
  }
  MixedSource::SetPaused(false);
}

bool MixedSource::IsOffline() const {
  return options_.prior_rows == options_.batch_size ||
         prior_->num_samples() < options_.offline_batches * options_.batch_size;
}

ReadResult MixedSource::Next(Clock::TimePoint deadline, Batch* batch) {
  if (num_wanted_ <= 0) return ReadResult::kPaused;
  const bool is_offline = IsOffline();
  if (is_offline) {
    if (is_paused_) return ReadResult::kPaused;
  } else {
    const ReadResult result = NextActed(deadline);
    if (result != ReadResult::kOk) return result;
  }
  batch->Reserve(options_.batch_size, prior_->form(), prior_->shape());
  if (!is_offline) TakeActed(batch);
  batch->total_steps = total_steps_;
  batch->lost_steps = drawn_.lost_steps;
  const int64_t prior_rows =
      is_offline ? options_.batch_size : options_.prior_rows;
  prior_->Draw(options_.batch_size - prior_rows, prior_rows,
               options_.importance.At(total_steps_), batch);
  if (num_wanted_ != std::numeric_limits<int64_t>::max()) --num_wanted_;
  return ReadResult::kOk;
}

ReadResult MixedSource::NextActed(Clock::TimePoint deadline) {
  if (is_acted_paused_ != is_paused_) {
    // the offline batches are over
    acted_.SetLimit(num_wanted_);
    SetPaused(is_paused_);
  }
  const ReadResult result = acted_.Next(deadline, &drawn_);
  if (result != ReadResult::kOk) return result;
  const int64_t wanted = options_.batch_size - options_.prior_rows;
  if (drawn_.size != wanted || drawn_.form != prior_->form()) {
    throw CommError(fmt::format(
        "the replay gives {} items as {}; wanted beside the prior data: {} as "
        "{}",
        drawn_.size, ToString(drawn_.form), wanted, ToString(prior_->form())));
  }
  total_steps_ = drawn_.total_steps;
  return result;
}

void MixedSource::TakeActed(Batch* batch) {
  CopyFirst(drawn_.observations, batch->observations);
  CopyFirst(drawn_.next_observations, batch->next_observations);
  CopyFirst(drawn_.actions, batch->actions);
  // all rows or none are compressed
  if (drawn_.compressed.empty()) {
    CopyFirst(drawn_.frames, batch->frames);
    CopyFirst(drawn_.next_frames, batch->next_frames);
  }
  batch->compressed = std::move(drawn_.compressed);
  CopyFirst(drawn_.rewards, batch->rewards);
  CopyFirst(drawn_.discounts, batch->discounts);
  CopyFirst(drawn_.num_steps, batch->num_steps);
  CopyFirst(drawn_.priorities, batch->priorities);
  CopyFirst(drawn_.weights, batch->weights);
  CopyFirst(drawn_.probabilities, batch->probabilities);
  CopyFirst(drawn_.times_sampled, batch->times_sampled);
  CopyFirst(drawn_.ages, batch->ages);
  CopyFirst(drawn_.keys, batch->keys);
  CopyFirst(drawn_.shards, batch->shards);
  batch->reader_id = drawn_.reader_id;
  batch->table = drawn_.table;
  batch->num_restarts = drawn_.num_restarts;
}

void MixedSource::UpdatePriorities(const Batch& batch,
                                   std::span<const float> priorities) {
  if (static_cast<int64_t>(priorities.size()) != batch.size) {
    throw InvalidArgument(
        fmt::format("MixedSource: {} priorities for a batch of {}",
                    priorities.size(), batch.size));
  }
  const auto num_acted =
      static_cast<size_t>(std::ranges::find(batch.shards, Batch::kPriorShard) -
                          batch.shards.begin());
  if (num_acted > 0) {
    Batch acted;
    acted.size = static_cast<int64_t>(num_acted);
    const auto end = static_cast<std::ptrdiff_t>(num_acted);
    acted.keys.assign(batch.keys.begin(), batch.keys.begin() + end);
    acted.shards.assign(batch.shards.begin(), batch.shards.begin() + end);
    acted.reader_id = batch.reader_id;
    acted.table = batch.table;
    acted.num_restarts = batch.num_restarts;
    acted_.UpdatePriorities(acted, priorities.first(num_acted));
  }
  prior_->UpdatePriorities(std::span(batch.keys).subspan(num_acted),
                           priorities.subspan(num_acted));
}

void MixedSource::SetLimit(int64_t num_batches) {
  num_wanted_ = num_batches;
  if (!IsOffline()) acted_.SetLimit(num_batches);
}

void MixedSource::SetPaused(bool is_paused) {
  is_paused_ = is_paused;
  is_acted_paused_ = is_paused || IsOffline();
  acted_.SetPaused(is_acted_paused_);
}

void MixedSource::StartCheckpoint(uint64_t id,
                                  const std::filesystem::path& folder) {
  acted_.StartCheckpoint(id, folder);
  // behind the learner's part, which makes the folder
  writing_ = PostOrRun(options_.disk, [id, folder, state = prior_->State()] {
    WriteCheckpointFile(folder, {.number = kStateNumber, .id = id}, state);
  });
}

CheckpointState MixedSource::PollCheckpoint() {
  if (writing_.valid()) {
    if (!IsDone(writing_)) return CheckpointState::kPending;
    writing_.get();
  }
  return acted_.PollCheckpoint();
}

std::string MixedSource::FindDamage(const std::filesystem::path& folder) {
  if (!std::filesystem::exists(CheckpointPath(folder, kStateNumber))) return "";
  try {
    static_cast<void>(ReadCheckpointFile(folder, kStateNumber));
    return "";
  } catch (const IoError& error) {
    return error.what();
  }
}

void MixedSource::RestoreParts(const std::filesystem::path& folder) {
  if (!std::filesystem::exists(CheckpointPath(folder, kStateNumber))) return;
  const CheckpointFile file = ReadCheckpointFile(folder, kStateNumber);
  prior_->Restore(file.snapshot());
  SetPaused(is_paused_);
}

}  // namespace replicant::replay
