#include "replay/prior/prior_replay.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "replay/checkpoint/checkpoint_layout.h"
#include "replay/checkpoint/read_chunks.h"
#include "replay/client/importance_weights.h"
#include "replay/format/batch_codec.h"
#include "replay/format/batch_message.h"

namespace replicant::replay {
namespace {

struct StoredRecord {
  uint64_t writer = 0;
  std::shared_ptr<Chunk> chunk;
};

struct StoredRecords {
  std::vector<StoredRecord> all;
  int64_t num_left_out = 0;
};

StoredRecords ReadAll(const std::filesystem::path& folder,
                      const StepShape& shape) {
  CheckPrior(folder, shape);
  StoredRecords records;
  ReadChunks(folder, /*id=*/0, [&](const SegmentRecord& record) {
    auto chunk = std::make_shared<Chunk>(
        std::vector<std::byte>(record.block.begin(), record.block.end()),
        shape);
    if (chunk->view.HasFiniteRows()) {
      records.all.push_back({record.writer, std::move(chunk)});
    } else {
      ++records.num_left_out;
    }
  });
  return records;
}

}  // namespace

void CheckPrior(const std::filesystem::path& folder, const StepShape& shape) {
  if (!std::filesystem::is_directory(folder)) {
    throw IoError(
        fmt::format("{}: no such folder; hint: replicant data import makes it",
                    folder.string()));
  }
  const std::optional<CheckpointLayout> layout = ReadLayout(folder);
  if (!layout) {
    throw IoError(
        fmt::format("{}: no checkpoint of a replay; hint: replicant "
                    "data import makes one",
                    folder.string()));
  }
  if (layout->shape == shape) return;
  const auto describe = [](const StepShape& s) {
    return fmt::format(
        "{} numbers beside the pixels, {} of the action, {} "
        "bytes of a frame",
        s.observation_bytes / 4, s.action_bytes / 4, s.frame_bytes);
  };
  throw InvalidArgument(
      fmt::format("{}: its steps have {}; the run's have {}; hint: the mapping "
                  "of replicant data import",
                  folder.string(), describe(layout->shape), describe(shape)));
}

PriorSummary SummarizePrior(const std::filesystem::path& folder,
                            const StepShape& shape) {
  PriorSummary summary;
  double sum = 0.0;
  const StoredRecords records = ReadAll(folder, shape);
  summary.num_left_out = records.num_left_out;
  for (const StoredRecord& record : records.all) {
    const ChunkView& view = record.chunk->view;
    for (int64_t i = 0; i < view.num_steps(); ++i) {
      const float reward = view.reward(i);
      if (summary.num_steps == 0) {
        summary.least_reward = summary.largest_reward = reward;
      }
      summary.least_reward = std::min(summary.least_reward, reward);
      summary.largest_reward = std::max(summary.largest_reward, reward);
      sum += static_cast<double>(reward);
      summary.num_terminated += view.discount(i) == 0.0F ? 1 : 0;
      ++summary.num_steps;
    }
    summary.num_episodes += view.ends_episode() ? 1 : 0;
  }
  summary.mean_reward =
      sum / static_cast<double>(std::max<int64_t>(1, summary.num_steps));
  return summary;
}

PriorReplay::PriorReplay(PriorOptions options) : options_(std::move(options)) {
  StoredRecords records = ReadAll(options_.folder, options_.shape);
  if (records.num_left_out > 0) {
    spdlog::warn(
        "{}: {} parts of episodes are left out: they hold numbers that are not "
        "finite",
        options_.folder.string(), records.num_left_out);
  }
  int64_t num_steps = 0;
  for (const auto& record : records.all) {
    num_steps += record.chunk->view.num_steps();
  }
  TableConfig table = options_.table;
  table.name = "prior";
  table.max_size = std::max<int64_t>(1, num_steps);
  table.max_times_sampled = 0;
  // the steps were made before the run: among them age says nothing
  table.priority_fade = {};
  table.rate_limiter = {.mode = RateLimiterMode::kMinSize,
                        .min_size_to_sample = 1};
  config_ = {.shape = options_.shape,
             .has_float_rows = true,
             .tables = {table},
             .max_bytes = std::numeric_limits<int64_t>::max() / 2,
             .seed = options_.seed};
  config_.limits.max_size = table.max_size;
  shard_ = std::make_unique<Shard>(config_, &Clock::Real());
  std::map<uint64_t, uint64_t> sequences;  // by writer
  for (StoredRecord& record : records.all) {
    // a chunk whose episode lacks its beginning is left out
    const InsertResult result = shard_->TryInsert(
        record.writer, ++sequences[record.writer], std::move(record.chunk));
    REPLICANT_CHECK(
        result == InsertResult::kInserted || result == InsertResult::kDropped,
        "PriorReplay: insert {}", static_cast<int>(result));
  }
  if (shard_->Status().tables[0].size == 0) {
    throw InvalidArgument(fmt::format("{}: its {} steps make no item",
                                      options_.folder.string(), num_steps));
  }
}

void PriorReplay::Draw(int64_t first_row, int64_t count,
                       double importance_exponent, Batch* batch) {
  SampledBatch drawn;
  const int64_t num_drawn =
      shard_->TrySample(/*table=*/0, count, "learner", &drawn);
  REPLICANT_CHECK_EQ(num_drawn, count);
  num_samples_ += count;
  batch->TakeCompressed(
      BatchMessage(EncodeBatch(drawn, BatchState::kFull, options_.shape,
                               config_.tables[0].n_step.form(),
                               std::numeric_limits<size_t>::max()),
                   options_.shape),
      first_row, Batch::kPriorShard, /*share=*/1.0);
  const auto first = static_cast<size_t>(first_row);
  const auto rows = static_cast<size_t>(count);
  ImportanceWeights(std::span(batch->probabilities).subspan(first, rows),
                    importance_exponent,
                    std::span(batch->weights).subspan(first, rows));
}

void PriorReplay::UpdatePriorities(std::span<const ItemKey> keys,
                                   std::span<const float> priorities) {
  REPLICANT_CHECK_EQ(keys.size(), priorities.size());
  std::vector<PriorityUpdate> updates;
  updates.reserve(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    updates.push_back({keys[i], priorities[i]});
  }
  shard_->UpdatePriorities(/*table=*/0, updates);
}

std::vector<std::byte> PriorReplay::State() const {
  // the places of the chunks are those of the folder
  return EncodeSnapshot(shard_->TakeSnapshot(),
                        [](uint64_t) { return ChunkLocation{}; });
}

void PriorReplay::Restore(std::span<const std::byte> state) {
  const EncodedSnapshot encoded = DecodePlaces(state);
  const ShardSnapshot loaded = shard_->TakeSnapshot();
  const auto fits = [&] {
    if (encoded.places.size() != loaded.chunks.size()) return false;
    for (size_t i = 0; i < encoded.places.size(); ++i) {
      if (encoded.places[i].serial != loaded.chunks[i].data->serial) {
        return false;
      }
    }
    return true;
  };
  if (!fits()) {
    throw IoError(fmt::format(
        "{}: {} groups of steps; the run's checkpoint has {}; "
        "hint: give the run the prior data that it began with",
        options_.folder.string(), loaded.chunks.size(), encoded.places.size()));
  }
  auto shard = std::make_unique<Shard>(config_, &Clock::Real());
  std::vector<std::shared_ptr<StoredChunk>> chunks;
  chunks.reserve(loaded.chunks.size());
  for (const auto& saved : loaded.chunks) {
    const Chunk& chunk = *saved.data;
    chunks.push_back(shard->MakeChunk({chunk.block.begin(), chunk.block.end()},
                                      chunk.serial, chunk.writer,
                                      chunk.sequence, /*wants_disk=*/false));
  }
  shard->Restore(DecodeSnapshot(encoded, std::move(chunks)));
  shard_ = std::move(shard);
  num_samples_ = shard_->Status().tables[0].samples;
}

}  // namespace replicant::replay
