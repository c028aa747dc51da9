#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "engine/graph/tensor_type.h"
#include "engine/kernels/backend.h"
#include "engine/runtime/resident_input.h"

namespace replicant::learner {

// Frames in the memory of the backend that trains, so that a batch is slots of
// this table, [slots, frame_bytes] u8, and stacks are gathered within the step
// (graph::GatherStacks). A frame that the reader keeps (replay::KeptFrames) is
// sent when it is first drawn and stays until newer ones need its slot. Any
// other frame is sent with each batch, to spare slots behind.
//
//   frames.BeginBatch();
//   slots[...] = frames.SlotOf(number, frame);   for each frame of the batch
//   plan.Start();                                calls Update(), which sends
//
// The next batch may take slots of one whose step still runs: Update() copies
// in the order of the plan's stream, so that the step has read them by then.
// What is sent waits in pinned memory of the host, which the next batch fills
// once it has been copied.
//
// Thread-safety: SlotOf() from several threads at once, between BeginBatch()
// and Update(); the rest from one thread.
class ResidentFrames : public runtime::ResidentInput {
 public:
  struct Options {
    int64_t frame_bytes = 0;
    // Of frames that stay.
    int64_t max_bytes = 0;
    int64_t frames_per_batch = 0;
  };

  // The backend outlives the table. Throws DeviceError, which names the key,
  // if its memory is too small.
  ResidentFrames(kernels::Backend& backend, const Options& options);
  // Waits for copies in progress.
  ~ResidentFrames() override;
  ResidentFrames(const ResidentFrames&) = delete;
  ResidentFrames& operator=(const ResidentFrames&) = delete;

  // Starts the slots of a batch, whose step runs after those before it. The
  // slots of a batch that no step has taken are given up.
  void BeginBatch() EXCLUDES(mutex_);
  // The slot of a frame of the batch, until the next BeginBatch(). `number` is
  // replay::ItemFrames', 0 for a frame that is not kept. Takes a copy of the
  // frame if it is not in the table. Calls of a batch: frames_per_batch
  // (checked).
  int32_t SlotOf(uint64_t number, const std::byte* frame) EXCLUDES(mutex_);

  const graph::TensorType& type() const override { return type_; }
  std::byte* data() override { return table_->data(); }
  void Update(kernels::Stream& stream) override;

  // Frames sent so far.
  int64_t num_sent() const { return num_sent_; }

 private:
  struct Slot {
    uint64_t number = 0;
    uint64_t batch = 0;  // that used it last
  };
  // Successive slots, whose frames wait one after the other.
  struct Run {
    int64_t first_slot;
    int64_t first_waiting;
    int64_t count;
  };

  // A slot for a frame that is kept, where the batch leaves one.
  int64_t TakeSlot(uint64_t number) REQUIRES(mutex_);
  std::byte* WaitingAt(int64_t i) {
    return waiting_->data() + i * options_.frame_bytes;
  }
  void Send(kernels::Stream& stream, const Run& run);

  const Options options_;
  const int64_t num_staying_;  // slots, in front of the spare ones
  graph::TensorType type_;
  std::unique_ptr<kernels::Buffer> table_;
  std::unique_ptr<kernels::Buffer> waiting_;  // [frames_per_batch] of the host
  std::unique_ptr<kernels::Event> copied_;
  bool is_copying_ = false;
  int64_t num_sent_ = 0;

  Mutex mutex_;
  uint64_t batch_ GUARDED_BY(mutex_) = 0;
  std::unordered_map<uint64_t, int32_t> slot_of_ GUARDED_BY(mutex_);
  std::vector<Slot> slots_ GUARDED_BY(mutex_);  // that stay
  size_t next_slot_ GUARDED_BY(mutex_) = 0;     // the oldest
  // What waits: for slots that stay, from the front of waiting_ on; for spare
  // ones from its end backwards, and so are their slots.
  std::vector<Run> runs_ GUARDED_BY(mutex_);
  int64_t num_waiting_ GUARDED_BY(mutex_) = 0;
  int64_t num_spare_ GUARDED_BY(mutex_) = 0;
};

}  // namespace replicant::learner
