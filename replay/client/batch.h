#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/rpc/shared_memory.h"
#include "base/tensor/host_buffer.h"
#include "replay/format/batch_message.h"
#include "replay/format/frame_codec.h"

namespace replicant::replay {

// B items, n-step transitions or windows, in the learner's layout, in aligned
// memory. replay/format/batch_form.h has the rows of both forms.
struct Batch {
  int64_t size = 0;  // B
  BatchForm form;
  // Transitions: [B, observation_bytes] o_t and o_{t+k}, [B, action_bytes] a_t.
  // Windows: [B, H + 1, observation_bytes], none, and [B, H, action_bytes].
  HostBuffer observations;
  HostBuffer next_observations;
  HostBuffer actions;
  // Transitions: the stacks of o_t and o_{t+k}, [B, stack, frame_bytes] each.
  // Windows: [B, H + stack, frame_bytes], each frame once, and none. Rows in
  // `compressed` are not filled.
  HostBuffer frames;
  HostBuffer next_frames;
  // Transitions: [B] R and D. Windows: [B, H] r and d of each step, zero beyond
  // its steps.
  std::vector<float> rewards;
  std::vector<float> discounts;
  // [B] each
  std::vector<int32_t> num_steps;     // k
  std::vector<float> priorities;      // as they were when drawn
  std::vector<float> weights;         // importance weights, the largest is 1
  std::vector<double> probabilities;  // of each draw, over all services
  std::vector<int64_t> times_sampled;
  std::vector<int64_t> ages;  // items that the row's service inserted since
  std::vector<ItemKey> keys;
  std::vector<int32_t> shards;  // index of the endpoint that it came from
  // instead of an index: prior data, which the reader's process holds
  static constexpr int32_t kPriorShard = -1;
  // The BatchReader that drew the batch and its table, for UpdatePriorities();
  // 0 and "": none. [services] how often each was restarted before the draws.
  uint64_t reader_id = 0;
  std::string table;
  std::vector<int64_t> num_restarts;
  // Number of steps that all writers had inserted at the last draw, including
  // steps that the reader saw counted before a service restarted.
  int64_t total_steps = 0;
  int64_t lost_steps = 0;  // the part that no service counts any more
  // The shared memory that holds the buffers, if a reader shares them.
  std::shared_ptr<rpc::SharedMemory> memory;
  // Messages whose frames lie elsewhere, for rows from first_row on.
  struct Compressed {
    int64_t first_row;
    BatchMessage message;
  };
  std::vector<Compressed> compressed;

  // Whether the buffers have the sizes for B items of this form and shape.
  bool HasBuffersFor(int64_t batch_size, const BatchForm& item_form,
                     const StepShape& shape) const;
  // Makes buffers of these sizes unless the batch has them, and resizes it.
  void Reserve(int64_t batch_size, const BatchForm& item_form,
               const StepShape& shape);
  // Sets size, form and the lengths of the vectors, and clears `compressed`.
  // The caller sets the buffers.
  void Resize(int64_t batch_size, const BatchForm& item_form);

  // Copies the items of a message to the rows from first_row on. `shard` drew
  // them; a draw goes to that shard with probability `share`. Throws what
  // BatchMessage::LocateFrames() throws.
  void Take(const BatchMessage& message, int64_t first_row, int32_t shard,
            double share, FrameRoom& room);
  // Copies the items without their frames: keeps the message for FramesOf().
  void TakeCompressed(BatchMessage message, int64_t first_row, int32_t shard,
                      double share);
  // Returns the frames of a row, until the next use of `room`: in the buffers,
  // in blocks that the reader keeps, or decoded into `room`. Throws what
  // BatchMessage::LocateFrames() throws. Several threads may call this at once,
  // each with a separate room.
  ItemFrames FramesOf(int64_t row, FrameRoom& room) const;
  // Sets the importance weights from the probabilities; exponent 0 makes all 1.
  void SetWeights(double importance_exponent);

 private:
  // Take() without the frames.
  void TakeItems(const BatchMessage& message, int64_t first_row, int32_t shard,
                 double share);
};

}  // namespace replicant::replay
