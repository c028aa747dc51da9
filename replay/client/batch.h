#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/rpc/shared_memory.h"
#include "core/tensor/host_buffer.h"
#include "replay/format/batch_codec.h"
#include "replay/format/frame_codec.h"

namespace replicant::replay {

// B transitions in the layout that the learner needs, in aligned memory.
struct Batch {
  int64_t size = 0;  // B
  int64_t stack = 1;
  HostBuffer observations;       // [B, observation_bytes] o_t
  HostBuffer next_observations;  // [B, observation_bytes] o_{t+k}
  HostBuffer actions;            // [B, action_bytes] a_t
  // The frames of o_t and o_{t+k}, [B, stack, frame_bytes] each. Rows in
  // `compressed` are not filled.
  HostBuffer frames;
  HostBuffer next_frames;
  // [B] each
  std::vector<float> rewards;         // R
  std::vector<float> discounts;       // D
  std::vector<float> priorities;      // as they were when drawn
  std::vector<float> weights;         // importance weights, the largest is 1
  std::vector<double> probabilities;  // of each draw, over all services
  std::vector<int64_t> times_sampled;
  std::vector<ItemKey> keys;
  std::vector<int32_t> shards;  // index of the endpoint that it came from
  // Number of steps that all writers had inserted at the last draw, those
  // included that the reader saw counted before a service was restarted.
  int64_t total_steps = 0;
  // The shared memory that holds the buffers, if a reader shares them.
  std::shared_ptr<rpc::SharedMemory> memory;
  // Messages with frames that are not decoded, for rows from first_row on.
  struct Compressed {
    int64_t first_row;
    BatchMessage message;
  };
  std::vector<Compressed> compressed;

  // Whether the buffers have the sizes for B items of this shape and stack.
  bool HasBuffersFor(int64_t batch_size, int64_t frame_stack,
                     const StepShape& shape) const;
  // Sets size, stack and the lengths of the vectors, and clears `compressed`.
  // The caller sets the buffers.
  void Resize(int64_t batch_size, int64_t frame_stack);

  // Copies the items of a message to the rows from first_row on. They were
  // drawn by `shard`, which a draw chose with probability `share`. Throws what
  // BatchMessage::DecodeFrames() throws.
  void Take(const BatchMessage& message, int64_t first_row, int32_t shard,
            double share, FrameDecoder& decoder);
  // The same without the frames: keeps the message for StacksOf().
  void TakeCompressed(BatchMessage message, int64_t first_row, int32_t shard,
                      double share);
  // Returns the two stacks of a row, [stack, frame_bytes] each: in the buffers,
  // or decoded into `room`, [2, stack, frame_bytes] (checked). Throws what
  // BatchMessage::DecodeFrames() throws. Several threads may call this at once,
  // each with its own decoder and room.
  struct Stacks {
    std::span<const std::byte> frames, next_frames;
  };
  Stacks StacksOf(int64_t row, FrameDecoder& decoder,
                  std::span<std::byte> room) const;
  // Sets the importance weights from the probabilities; exponent 0 makes all 1.
  void SetWeights(double importance_exponent);

 private:
  // Take() without the frames.
  void TakeItems(const BatchMessage& message, int64_t first_row, int32_t shard,
                 double share);
};

}  // namespace replicant::replay
