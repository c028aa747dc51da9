#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/rpc/frame.h"
#include "replay/frame_codec.h"
#include "replay/table.h"

namespace replicant::replay {

enum class BatchState : uint8_t {
  kFull = 0,     // as many items as were asked for
  kTimeout = 1,  // those that were admitted by the deadline
  kClosed = 2,   // the service ends
};

// A batch as it travels holds, for each item, the rows o_t, o_{t+k} and a_t as
// bytes, and those frames of its groups that the two stacks need, still
// compressed, in segments: frame groups (replay/frame_codec.h) cut out of the
// step groups. Frame skip + i of a segment is the one of step first_step + i,
// 0 <= i < num_frames.
//
// The stack of o_e, 0 the first frame of its episode, is
//
//   frames max(0, e - stack + 1 + j), j = 0 ... stack - 1.

// Makes the message of `batch`, which was drawn from a table of this stack. The
// only copy of the bytes on the service's side. Throws InvalidArgument if a
// part would be longer than `max_part_bytes`, before it is allocated.
rpc::Message EncodeBatch(const SampledBatch& batch, BatchState state,
                         const StepShape& shape, int64_t stack,
                         size_t max_part_bytes);

// A batch that came as a message. [B] items.
//
// Thread-safety: const methods may run concurrently, each with a decoder of its
// own.
class BatchMessage {
 public:
  // Takes the message over and checks all but the contents of the segments.
  // Throws rpc::MalformedMessage.
  BatchMessage(rpc::Message payload, const StepShape& shape);

  BatchState state() const { return state_; }
  int64_t size() const { return static_cast<int64_t>(items_.size()); }
  // first_group and num_groups are of no meaning here.
  const std::vector<SampledItem>& items() const { return items_; }
  int64_t table_size() const { return table_size_; }
  double table_mass() const { return table_mass_; }
  int64_t stack() const { return stack_; }
  const StepShape& shape() const { return shape_; }

  // The rows of item `index` (checked).
  std::span<const std::byte> Observation(int64_t index) const;
  std::span<const std::byte> NextObservation(int64_t index) const;
  std::span<const std::byte> Action(int64_t index) const;

  // Decompresses the two stacks of an item: `frames` for o_t and `next_frames`
  // for o_{t+k}, each [stack, frame_bytes] (checked). `scratch` is kept for its
  // memory. Throws rpc::MalformedMessage or IoError if the segments are not
  // what they should be; the output is undefined then.
  void DecodeFrames(int64_t index, FrameDecoder& decoder,
                    std::vector<std::byte>& scratch,
                    std::span<std::byte> frames,
                    std::span<std::byte> next_frames) const;

 private:
  struct Segment {
    int64_t first_step = 0;
    int64_t num_frames = 0;
    int64_t skip = 0;
    size_t offset = 0;  // in the third part
    size_t size = 0;
  };

  void ReadColumns();
  void CheckSegments() const;
  std::span<const std::byte> Row(size_t begin, int64_t index,
                                 int64_t row_bytes) const;

  rpc::Message payload_;
  const StepShape shape_;
  BatchState state_ = BatchState::kFull;
  int64_t table_size_ = 0;
  double table_mass_ = 0.0;
  int64_t stack_ = 1;
  std::vector<SampledItem> items_;
  std::vector<Segment> segments_;
  // of item i: [segment_ends_[i - 1], segment_ends_[i])
  std::vector<size_t> segment_ends_;
};

}  // namespace replicant::replay
