#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/rpc/frame.h"
#include "base/rpc/shared_memory.h"
#include "base/rpc/wire.h"
#include "replay/format/batch_codec.h"
#include "replay/format/batch_form.h"
#include "replay/format/batch_target.h"
#include "replay/format/frame_codec.h"
#include "replay/format/sampled_batch.h"

namespace replicant::replay {

// A frame block that a reader keeps, in memory of `owner`; without bytes: none.
struct KeptBlock {
  std::shared_ptr<const void> owner;
  std::span<const std::byte> bytes;
  // The number of its first frame; those of the others follow. No other frame
  // that this process keeps or has kept has the same. From 1 on.
  uint64_t first_number = 0;
};
// Finds a block by its chunk's serial.
using FindFrameBlock = std::function<KeptBlock(uint64_t serial)>;

// The frames of an item, each where it lies.
struct ItemFrames {
  std::span<const std::byte* const> frames;       // [BatchForm::num_frames()]
  std::span<const std::byte* const> next_frames;  // [stack]; of windows none
  // Of each, its number among the frames that the reader keeps; 0: not kept.
  std::span<const uint64_t> numbers;
  std::span<const uint64_t> next_numbers;
};

// What a thread needs to read the frames of items, one item after the other.
struct FrameRoom {
  FrameDecoder decoder;
  std::vector<std::byte> bytes;          // decoded frames
  std::vector<const std::byte*> places;  // of an item's frames
  std::vector<uint64_t> numbers;         // of them
};

// The frames of a chunk that a reply leaves out are not kept (any more).
class MissingFrames : public rpc::MalformedMessage {
 public:
  using rpc::MalformedMessage::MalformedMessage;
};

// A received batch of B items.
//
// Thread-safety: const methods may run concurrently, each with a separate room.
class BatchMessage {
 public:
  // Takes over the message and checks everything except the segments'
  // contents. `target` is the request's offer, or nullptr. `find_kept` finds
  // the blocks of the request's KeptRange; the message holds them. Throws
  // rpc::MalformedMessage; MissingFrames for a block that is not kept.
  BatchMessage(rpc::Message payload, const StepShape& shape,
               const BatchTarget* target = nullptr,
               const FindFrameBlock& find_kept = {});

  BatchState state() const { return state_; }
  int64_t size() const { return static_cast<int64_t>(items_.size()); }
  // Without first_chunk and num_chunks, which have no meaning here.
  const std::vector<SampledItem>& items() const { return items_; }
  int64_t table_size() const { return table_size_; }
  double table_mass() const { return table_mass_; }
  int64_t total_steps() const { return total_steps_; }
  const BatchForm& form() const { return form_; }
  const StepShape& shape() const { return shape_; }

  // Whether the rows, and the frames of items without segments, lie in the
  // memory of the target.
  bool AreRowsInMemory() const { return are_rows_in_memory_; }
  bool has_segments() const { return !segments_.empty(); }
  // The segments' bytes; empty if they lie in the message.
  std::span<const std::byte> SegmentsInMemory() const {
    return are_segments_in_memory_ ? segment_data_
                                   : std::span<const std::byte>();
  }

  // The rows of item `index` (checked), with BatchForm::BytesOf() each.
  std::span<const std::byte> Observation(int64_t index) const;
  std::span<const std::byte> NextObservation(int64_t index) const;
  std::span<const std::byte> Action(int64_t index) const;
  // [H] of item `index` of a table with windows (checked); else empty.
  std::span<const float> StepRewards(int64_t index) const;
  std::span<const float> StepDiscounts(int64_t index) const;

  // Finds the frames of an item. An uncompressed one stays where it lies: in
  // the message, the target's memory or a kept block. The others are decoded
  // into their places in `frames` and `next_frames`, which have the sizes of
  // BatchForm::BytesOf() (checked). The result holds until the next use of
  // `room`. Throws rpc::MalformedMessage or IoError, with undefined output, if
  // the segments are damaged.
  ItemFrames LocateFrames(int64_t index, FrameRoom& room,
                          std::span<std::byte> frames,
                          std::span<std::byte> next_frames) const;
  // Finds the frames of all items once, so that LocateFrames() decodes none:
  // those that it would decode are then in this message. Throws what it throws.
  void DecodeFrames(FrameRoom& room);
  // Frames of all items, and those of them in kept blocks.
  int64_t num_frames() const { return num_frames_; }
  int64_t num_kept_frames() const { return num_kept_frames_; }

 private:
  struct Segment {
    int64_t first_step = 0;
    int64_t num_frames = 0;
    int64_t skip = 0;
    size_t offset = 0;  // in segment_data_
    size_t size = 0;
    uint64_t serial = 0;
    KeptBlock kept;  // in place of the bytes
  };

  void ReadColumns();
  void ReadForm(rpc::WireReader& reader);
  // Set the spans of rows and segments.
  void FindRows(const BatchTarget* target);
  void FindSegments(const BatchTarget* target);
  void FindKept(const FindFrameBlock& find_kept);
  void CheckSegments() const;
  // The frame block that a segment names, with its frames (checked).
  FrameBlockView BlockOf(const Segment& segment) const;
  std::span<const float> StepsOf(const std::vector<float>& steps,
                                 int64_t index) const;
  std::span<const std::byte> RowOf(std::span<const std::byte> rows,
                                   int64_t index, int64_t row_bytes) const;

  rpc::Message payload_;
  std::shared_ptr<rpc::SharedMemory> memory_;
  const StepShape shape_;
  BatchState state_ = BatchState::kFull;
  int64_t table_size_ = 0;
  double table_mass_ = 0.0;
  int64_t total_steps_ = 0;
  BatchForm form_;
  RowBytes row_bytes_;
  bool are_rows_in_memory_ = false;
  bool are_segments_in_memory_ = false;
  std::vector<SampledItem> items_;
  std::vector<float> step_rewards_, step_discounts_;  // [B, H]
  std::vector<Segment> segments_;
  // of item i: [segment_ends_[i - 1], segment_ends_[i])
  std::vector<size_t> segment_ends_;
  size_t segments_bytes_ = 0;
  int64_t num_frames_ = 0;
  int64_t num_kept_frames_ = 0;
  // [B, ...] each
  std::span<const std::byte> observations_, next_observations_, actions_;
  // of the items without segments
  std::span<const std::byte> frames_, next_frames_;
  std::span<const std::byte> segment_data_;
  // after DecodeFrames(): [B, frames of an item], and the memory of those that
  // were decoded
  std::vector<const std::byte*> places_;
  std::vector<uint64_t> numbers_;
  std::vector<std::unique_ptr<std::byte[]>> decoded_;
};

}  // namespace replicant::replay
