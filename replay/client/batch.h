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

// B transitions as the learner takes them, in aligned memory.
struct Batch {
  int64_t size = 0;  // B
  int64_t stack = 1;
  HostBuffer observations;       // [B, observation_bytes] o_t
  HostBuffer next_observations;  // [B, observation_bytes] o_{t+k}
  HostBuffer actions;            // [B, action_bytes] a_t
  // The frames of o_t and o_{t+k}, [B, stack, frame_bytes] each, but for rows
  // that are still compressed.
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
  // Steps that all writers had brought when the last of it was drawn.
  int64_t total_steps = 0;
  // What the buffers are parts of, if a reader shares them with its services.
  std::shared_ptr<rpc::SharedMemory> memory;
  // Messages whose frames were not decoded, as rows first_row and on.
  struct Compressed {
    int64_t first_row;
    BatchMessage message;
  };
  std::vector<Compressed> compressed;

  // Whether the buffers are of B items of this shape and stack.
  bool HasBuffersFor(int64_t batch_size, int64_t frame_stack,
                     const StepShape& shape) const;
  // Sets size, stack and the lengths of the vectors, and forgets what is
  // compressed; the buffers are the caller's to give.
  void Resize(int64_t batch_size, int64_t frame_stack);

  // Takes the items of a message as rows first_row and on. They came from
  // `shard`, to which a draw went with probability `share`. Throws as
  // BatchMessage::DecodeFrames() does.
  void Take(const BatchMessage& message, int64_t first_row, int32_t shard,
            double share, FrameDecoder& decoder);
  // The same, with the message, so that StacksOf() decodes its frames.
  void TakeCompressed(BatchMessage message, int64_t first_row, int32_t shard,
                      double share);
  // The two stacks of a row, [stack, frame_bytes] each: in the buffers, or
  // decoded to `room`, [2, stack, frame_bytes] (checked). Throws as
  // BatchMessage::DecodeFrames() does. Several threads may ask at once, each
  // with a decoder and room of its own.
  struct Stacks {
    std::span<const std::byte> frames, next_frames;
  };
  Stacks StacksOf(int64_t row, FrameDecoder& decoder,
                  std::span<std::byte> room) const;
  // Importance weights of the exponent, from the probabilities; 0: all are 1.
  void SetWeights(double importance_exponent);

 private:
  // All of Take() but the frames.
  void TakeItems(const BatchMessage& message, int64_t first_row, int32_t shard,
                 double share);
};

}  // namespace replicant::replay
