#include "replay/client/sharded_writer.h"

#include <utility>

#include "base/error.h"

namespace replicant::replay {

ShardedWriter::ShardedWriter(ShardedWriterOptions options, Clock* clock)
    : options_(std::move(options)),
      clock_(clock),
      heard_at_(options_.endpoints.size()),
      writers_(options_.endpoints.size()) {
  if (options_.endpoints.empty()) {
    throw InvalidArgument(
        "ShardedWriter: no endpoints; give one for each shard");
  }
  current_ = OwnShard();
  WriterOf(current_);
}

int64_t ShardedWriter::OwnShard() const {
  const int64_t num_fixed =
      options_.num_environments - options_.num_environments % num_shards();
  const bool takes_turns = options_.environment >= num_fixed;
  return (options_.environment + (takes_turns ? num_episodes_ : 0)) %
         num_shards();
}

StepWriter& ShardedWriter::WriterOf(int64_t shard) {
  const auto i = static_cast<size_t>(shard);
  MutexLock lock(mutex_);
  if (writers_[i] == nullptr) {
    StepWriterOptions options = options_.writer;
    options.endpoint = options_.endpoints[i];
    // each shard has separate sequences
    options.writer_id = 0;
    writers_[i] = std::make_unique<StepWriter>(options, clock_);
    if (never_waits_) writers_[i]->StopWaiting();
  }
  return *writers_[i];
}

bool ShardedWriter::IsUsable(int64_t shard) {
  const StepWriter& writer = WriterOf(shard);
  const Clock::TimePoint now = clock_->Now();
  auto& heard_at = heard_at_[static_cast<size_t>(shard)];
  if (writer.metrics().is_connected || !heard_at) heard_at = now;
  return now - *heard_at <= options_.patience;
}

void ShardedWriter::BeginEpisode() {
  const int64_t own = OwnShard();
  const int64_t last = std::exchange(current_, own);
  for (int64_t i = 0; i < num_shards(); ++i) {
    const int64_t shard = (own + i) % num_shards();
    if (!IsUsable(shard)) continue;
    current_ = shard;
    break;
  }
  // an episode that was not ended is dropped there
  if (last != current_) WriterOf(last).AbandonEpisode();
  ++num_episodes_;
  WriterOf(current_).BeginEpisode();
}

void ShardedWriter::Append(const Step& step) {
  WriterOf(current_).Append(step);
}

void ShardedWriter::EndEpisode(std::span<const std::byte> observation,
                               std::span<const std::byte> frame) {
  WriterOf(current_).EndEpisode(observation, frame);
}

bool ShardedWriter::Flush(Clock::TimePoint deadline) {
  bool is_done = true;
  for (int64_t i = 0; i < num_shards(); ++i) {
    StepWriter* writer = nullptr;
    {
      MutexLock lock(mutex_);
      writer = writers_[static_cast<size_t>(i)].get();
    }
    if (writer != nullptr) is_done &= writer->Flush(deadline);
  }
  return is_done;
}

void ShardedWriter::StopWaiting() {
  MutexLock lock(mutex_);
  never_waits_ = true;
  for (const auto& writer : writers_) {
    if (writer != nullptr) writer->StopWaiting();
  }
}

void ShardedWriter::Close() {
  for (int64_t i = 0; i < num_shards(); ++i) {
    StepWriter* writer = nullptr;
    {
      MutexLock lock(mutex_);
      writer = writers_[static_cast<size_t>(i)].get();
    }
    if (writer != nullptr) writer->Close();
  }
}

StepWriterMetrics ShardedWriter::metrics() const {
  StepWriterMetrics sum;
  MutexLock lock(mutex_);
  for (const auto& writer : writers_) {
    if (writer == nullptr) continue;
    const StepWriterMetrics one = writer->metrics();
    sum.appended_steps += one.appended_steps;
    sum.acknowledged_chunks += one.acknowledged_chunks;
    sum.acknowledged_steps += one.acknowledged_steps;
    sum.dropped_episodes += one.dropped_episodes;
    sum.dropped_steps += one.dropped_steps;
    sum.resent_chunks += one.resent_chunks;
    sum.waited_s += one.waited_s;
    sum.queued_chunks += one.queued_chunks;
    sum.unanswered_chunks += one.unanswered_chunks;
    sum.is_connected |= one.is_connected;
  }
  return sum;
}

}  // namespace replicant::replay
