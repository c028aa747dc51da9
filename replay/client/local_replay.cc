#include "replay/client/local_replay.h"

#include <limits>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "replay/format/batch_codec.h"
#include "replay/format/batch_message.h"

namespace replicant::replay {

LocalReplay::LocalReplay(LocalReplayOptions options)
    : options_(std::move(options)),
      shard_(options_.shard, &Clock::Real()),
      kept_(options_.kept_frames, options_.shard.shape) {}

void LocalReplay::Writer::BeginEpisode() {
  builder_.reset();
  encoder_.reset();
  ++episode_;
  next_step_ = 0;
  num_sent_ = std::exchange(num_sent_before_, 0);
}

void LocalReplay::Writer::Restore(const State& state) {
  episode_ = state.episode - 1;
  sequence_ = state.sequence;
  num_sent_before_ = state.num_sent;
}

void LocalReplay::Writer::AddFrame(std::span<const std::byte> frame) {
  const StepShape& shape = replay_.options_.shard.shape;
  if (!builder_) builder_.emplace(shape, episode_, next_step_);
  if (shape.frame_bytes == 0) return;
  if (!encoder_) {
    // one more than the steps, for the last observation
    encoder_.emplace(replay_.options_.codec, shape.frame_bytes,
                     replay_.options_.group_steps + 1);
  }
  encoder_->Add(frame);
}

void LocalReplay::Writer::Append(const Step& step) {
  if (next_step_ < num_sent_) {
    ++next_step_;
    return;
  }
  AddFrame(step.frame);
  builder_->AddStep(step.observation, step.action, step.reward, step.discount,
                    step.priority);
  ++next_step_;
  if (builder_->num_steps() == replay_.options_.group_steps) Send();
}

void LocalReplay::Writer::EndEpisode(std::span<const std::byte> observation,
                                     std::span<const std::byte> frame) {
  if (next_step_ < num_sent_) return;
  AddFrame(frame);
  ++next_step_;
  builder_->AddLastObservation(observation);
  Send();
  num_sent_ = kAll;
}

void LocalReplay::Writer::Send() {
  std::vector<std::byte> block = builder_->Finish(
      encoder_ ? encoder_->Finish() : std::vector<std::byte>());
  builder_.reset();
  num_sent_ = next_step_;
  const InsertResult result =
      replay_.shard_.TryInsert(id_, ++sequence_, std::move(block));
  if (result == InsertResult::kWait) replay_.waiting_.push_back(id_);
  if (result == InsertResult::kNoRoom) {
    // nobody draws between the steps of a writer, so there never will be
    throw InvalidArgument("replay: " + replay_.shard_.Status().room_wait.why);
  }
  // the shard is never closed, and its writers send whole episodes in order
  REPLICANT_CHECK(
      result == InsertResult::kInserted || result == InsertResult::kWait,
      "LocalReplay: chunk {} of writer {}: result {}", sequence_, id_,
      static_cast<int>(result));
}

bool LocalReplay::MayWrite() {
  std::erase_if(waiting_, [this](uint64_t id) {
    return shard_.Resume(id) == InsertResult::kInserted;
  });
  return waiting_.empty();
}

void LocalReplay::KeepFrames() {
  // of the only shard; another one than that of no request
  constexpr uint64_t kToken = 1;
  int64_t num_blocks = 0;
  do {
    const FramesRequest wanted = kept_.Request();
    std::optional<uint64_t> after;
    if (wanted.token == kToken) after = wanted.after_serial;
    const Shard::ChunkRange range = shard_.Chunks(
        after, wanted.room_frames, kMaxBlocksPerReply, wanted.max_bytes);
    num_blocks = kept_.Take(range.ToReply(kToken));
  } while (num_blocks > 0);
  kept_.Forget(kept_.range().first_serial);
}

bool LocalReplay::Next(Batch* batch) {
  const int64_t wanted =
      options_.batch_size - static_cast<int64_t>(drawn_.items.size());
  if (shard_.TrySample(/*table=*/0, wanted, "local", &drawn_) < wanted) {
    return false;
  }
  const BatchForm form = options_.shard.tables[0].n_step.form();
  if (kept_.is_on()) KeepFrames();
  BatchMessage message(
      EncodeBatch(drawn_, BatchState::kFull, options_.shard.shape, form,
                  std::numeric_limits<size_t>::max(), /*target=*/nullptr,
                  kept_.range()),
      options_.shard.shape, /*target=*/nullptr,
      [this](uint64_t serial) { return kept_.Find(serial); });
  batch->Reserve(options_.batch_size, form, options_.shard.shape);
  if (kept_.is_on()) {
    batch->TakeCompressed(std::move(message), /*first_row=*/0, /*shard=*/0,
                          /*share=*/1.0);
  } else {
    batch->Take(message, /*first_row=*/0, /*shard=*/0, /*share=*/1.0, room_);
  }
  batch->total_steps = drawn_.total_steps;
  batch->SetWeights(options_.importance.At(batch->total_steps));
  drawn_ = SampledBatch();
  return true;
}

void LocalReplay::UpdatePriorities(const Batch& batch,
                                   std::span<const float> priorities) {
  std::vector<PriorityUpdate> updates;
  updates.reserve(priorities.size());
  for (size_t i = 0; i < priorities.size(); ++i) {
    updates.push_back({batch.keys[i], priorities[i]});
  }
  shard_.UpdatePriorities(/*table=*/0, updates);
}

}  // namespace replicant::replay
