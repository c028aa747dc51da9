#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "replay/client/batch.h"
#include "replay/client/importance_weights.h"
#include "replay/client/kept_frames.h"
#include "replay/client/step_sink.h"
#include "replay/format/chunk_format.h"
#include "replay/format/frame_codec.h"
#include "replay/table/shard.h"

namespace replicant::replay {

struct LocalReplayOptions {
  ShardConfig shard;
  int64_t group_steps = 8;
  FrameCodec codec = FrameCodec::kLz4;
  int64_t batch_size = 256;
  ImportanceSchedule importance = {};  // exponents in [0, 1]
  // Frames that need no decoding for each draw. Frames then lie elsewhere than
  // in a batch (Batch::compressed).
  KeptFrames::Options kept_frames = {};
};

// A replay in its user's process, without threads and without a network: the
// order of the calls alone determines its contents and draws. For lockstep runs
// (programs/lockstep/lockstep_training.h), tests and debugging. Steps and
// batches pass through the same codecs as in a service. Draws come from the
// first table.
//
// Thread-safety: one thread makes all calls.
class LocalReplay {
 public:
  // Throws InvalidArgument for unusable settings.
  explicit LocalReplay(LocalReplayOptions options);

  // Streams the steps of one environment, as StepWriter does.
  class Writer : public StepSink {
   public:
    // `replay` outlives the writer. Writers must differ in their id.
    Writer(LocalReplay* replay, uint64_t id) : replay_(*replay), id_(id) {}

    void BeginEpisode() override;
    // Throws InvalidArgument if open episodes hold all of max_bytes.
    void Append(const Step& step) override;
    void EndEpisode(std::span<const std::byte> observation,
                    std::span<const std::byte> frame) override;

    // Observations of an episode that is over.
    static constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

    // The writer's position: the last chunk that the replay has inserted.
    struct State {
      uint64_t episode = 0;
      uint64_t sequence = 0;
      int64_t num_sent = 0;  // observations of that episode, or kAll
    };
    State state() const { return {episode_, sequence_, num_sent_}; }
    // Continues from `state`: the next BeginEpisode() repeats the state's
    // episode, and Append() skips the steps that the replay has. An episode
    // that is over may be repeated by any other: all of it is skipped.
    void Restore(const State& state);

   private:
    void AddFrame(std::span<const std::byte> frame);
    void Send();

    LocalReplay& replay_;
    const uint64_t id_;
    uint64_t episode_ = 0;
    uint64_t sequence_ = 0;
    int64_t next_step_ = 0;
    int64_t num_sent_ = 0;
    int64_t num_sent_before_ = 0;  // of the episode that begins next
    std::optional<ChunkBuilder> builder_;
    std::optional<FrameBlockEncoder> encoder_;
  };

  // Inserts waiting items that are admitted now; true if none is left. If
  // false, the user should draw before writing more.
  bool MayWrite();

  // Draws a batch if the rate limiter admits all of it now; otherwise false.
  [[nodiscard]] bool Next(Batch* batch);
  // Throws like Table::UpdatePriorities().
  void UpdatePriorities(const Batch& batch, std::span<const float> priorities);

  Shard& shard() { return shard_; }

  // The writers whose items wait for the rate limiter. Between two batches, a
  // checkpoint needs only these and the shard.
  const std::vector<uint64_t>& waiting() const { return waiting_; }
  void set_waiting(std::vector<uint64_t> ids) { waiting_ = std::move(ids); }
  // Whether Next() has drawn only part of a batch so far.
  bool IsDrawing() const { return !drawn_.items.empty(); }

 private:
  // Keeps the frames that were inserted since the last call.
  void KeepFrames();

  const LocalReplayOptions options_;
  Shard shard_;
  KeptFrames kept_;
  FrameRoom room_;
  // the writers whose items wait for the rate limiter
  std::vector<uint64_t> waiting_;
  // drawn so far for the next batch
  SampledBatch drawn_;
};

}  // namespace replicant::replay
