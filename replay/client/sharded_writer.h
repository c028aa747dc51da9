#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "replay/client/step_sink.h"
#include "replay/client/step_writer.h"

namespace replicant::replay {

struct ShardedWriterOptions {
  // One per shard of the replay.
  std::vector<std::string> endpoints;
  // Options of each shard's writer, without the endpoint.
  StepWriterOptions writer = {};
  // Number of this writer's environment, and number of all environments.
  int64_t environment = 0;
  int64_t num_environments = 1;
  // Time without an answer after which a new episode goes to another shard.
  Clock::Duration patience = std::chrono::seconds(2);
};

// Streams the steps of one environment to the shards of a replay: each episode
// to one shard.
//
// Environment e of E writes to shard e mod N of N, so that a shard has the
// connections of E / N environments. If N does not divide E, the last E mod N
// environments take the shards in turn, episode by episode, so that all shards
// get equally many episodes.
//
// While its own shard does not answer, a new episode goes to the next shard
// that does. A shard whose rate limiter makes writers wait still answers, so
// its environments wait, as they would with one service. An episode never
// changes shards: while its shard is away it waits as StepWriter does, and
// unacknowledged steps are sent again. A lost shard thus costs no acknowledged
// step, and the environments of other shards continue.
//
// Thread-safety: as StepWriter.
class ShardedWriter : public StepSink {
 public:
  // Connects to the environment's own shard in the background, to others when
  // they are needed. Throws as StepWriter does, and InvalidArgument without
  // endpoints. `clock` outlives the writer.
  explicit ShardedWriter(ShardedWriterOptions options,
                         Clock* clock = &Clock::Real());

  void BeginEpisode() override;
  void Append(const Step& step) override;
  void EndEpisode(std::span<const std::byte> observation,
                  std::span<const std::byte> frame) override;

  // As StepWriter::Flush(), for all shards.
  [[nodiscard]] bool Flush(Clock::TimePoint deadline);
  void StopWaiting() EXCLUDES(mutex_);
  void Close();
  // Sums over the shards; is_connected if one of them is.
  StepWriterMetrics metrics() const EXCLUDES(mutex_);

  // The shard of the episode begun last.
  int64_t shard() const { return current_; }

 private:
  int64_t num_shards() const {
    return static_cast<int64_t>(options_.endpoints.size());
  }
  // The preferred shard of the next episode.
  int64_t OwnShard() const;
  // Whether an episode may begin on the shard now.
  bool IsUsable(int64_t shard);
  StepWriter& WriterOf(int64_t shard) EXCLUDES(mutex_);

  const ShardedWriterOptions options_;
  Clock* const clock_;
  int64_t num_episodes_ = 0;
  int64_t current_ = 0;
  // time when the shard last answered, or was first asked
  std::vector<std::optional<Clock::TimePoint>> heard_at_;

  // guards the pointers, for StopWaiting() and metrics() in other threads; a
  // writer is made once and lives as long as this object
  mutable Mutex mutex_;
  std::vector<std::unique_ptr<StepWriter>> writers_ GUARDED_BY(mutex_);
  bool never_waits_ GUARDED_BY(mutex_) = false;
};

}  // namespace replicant::replay
