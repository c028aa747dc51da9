#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/rpc/shared_memory.h"
#include "core/tensor/host_buffer.h"
#include "replay/batch_codec.h"
#include "replay/frame_codec.h"

namespace replicant::replay {

// B transitions as the learner takes them, in aligned memory.
struct Batch {
  int64_t size = 0;  // B
  int64_t stack = 1;
  HostBuffer observations;       // [B, observation_bytes] o_t
  HostBuffer next_observations;  // [B, observation_bytes] o_{t+k}
  HostBuffer actions;            // [B, action_bytes] a_t
  HostBuffer frames;             // [B, stack, frame_bytes] of o_t
  HostBuffer next_frames;        // [B, stack, frame_bytes] of o_{t+k}
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

  // Whether the buffers are of B items of this shape and stack.
  bool HasBuffersFor(int64_t batch_size, int64_t frame_stack,
                     const StepShape& shape) const;
  // Sets size, stack and the lengths of the vectors; the buffers are the
  // caller's to give.
  void Resize(int64_t batch_size, int64_t frame_stack);

  // Takes the items of a message as rows first_row and on. They came from
  // `shard`, to which a draw went with probability `share`. Throws as
  // BatchMessage::DecodeFrames() does.
  void Take(const BatchMessage& message, int64_t first_row, int32_t shard,
            double share, FrameDecoder& decoder);
  // Importance weights of the exponent, from the probabilities; 0: all are 1.
  void SetWeights(double importance_exponent);
};

}  // namespace replicant::replay
