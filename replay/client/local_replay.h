#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/base/clock.h"
#include "replay/client/batch.h"
#include "replay/format/frame_codec.h"
#include "replay/format/step_group.h"
#include "replay/table/shard.h"

namespace replicant::replay {

struct LocalReplayOptions {
  ShardConfig shard;
  int64_t group_steps = 8;
  FrameCodec codec = FrameCodec::kLz4;
  int64_t batch_size = 256;
  // The exponent of the importance weights, in [0, 1]; 0: all are 1.
  double importance_exponent = 0.0;
};

// A replay in its user's own process, without threads and without a network:
// what is written and drawn depends on the order of the calls alone. For runs
// in lockstep (programs/lockstep/lockstep_main.cc), tests and debugging. Steps
// and batches take the same way through codecs as those of a service; its first
// table is drawn from.
//
// Thread-safety: one thread makes all calls.
class LocalReplay {
 public:
  // Throws InvalidArgument for settings that cannot be used.
  explicit LocalReplay(LocalReplayOptions options);

  // Streams the steps of one environment, as StepWriter does.
  class Writer {
   public:
    // `replay` outlives the writer. No two writers have one id.
    Writer(LocalReplay* replay, uint64_t id) : replay_(*replay), id_(id) {}

    void BeginEpisode();
    // Throw InvalidArgument for a row of another length than the shape's.
    void Append(std::span<const std::byte> observation,
                std::span<const std::byte> frame,
                std::span<const std::byte> action, float reward,
                float discount);
    void EndEpisode(std::span<const std::byte> observation,
                    std::span<const std::byte> frame);

    // Where it stands in what the replay has taken in.
    struct State {
      uint64_t episode = 0;
      uint64_t sequence = 0;
      int64_t num_sent = 0;  // observations of that episode
    };
    State state() const { return {episode_, sequence_, num_sent_}; }
    // Goes on from `state`: the episode that begins next is that one, and what
    // was sent of it is passed over.
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
    std::optional<StepGroupBuilder> builder_;
    std::optional<FrameGroupEncoder> encoder_;
  };

  // Whether writers may go on. If not, what they wrote waits for the rate
  // limiter: draw first.
  bool MayWrite();

  // Draws a batch if the rate limiter admits all of it now; false if not.
  [[nodiscard]] bool Next(Batch* batch);
  // Throws like Table::UpdatePriorities().
  void UpdatePriorities(const Batch& batch, std::span<const float> priorities);

  Shard& shard() { return shard_; }

  // Beside the shard, what a checkpoint of a replay must hold: the writers
  // whose items wait for the rate limiter. Between two draws of
  // a batch there is nothing else.
  const std::vector<uint64_t>& waiting() const { return waiting_; }
  void set_waiting(std::vector<uint64_t> ids) { waiting_ = std::move(ids); }
  // Whether Next() has drawn a part of a batch.
  bool IsDrawing() const { return !drawn_.items.empty(); }

 private:
  const LocalReplayOptions options_;
  Shard shard_;
  FrameDecoder decoder_;
  // the writers whose items wait for the rate limiter
  std::vector<uint64_t> waiting_;
  // drawn so far for the next batch
  SampledBatch drawn_;
};

}  // namespace replicant::replay
