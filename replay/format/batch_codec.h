#pragma once

#include <cstddef>
#include <cstdint>

#include "base/rpc/frame.h"
#include "replay/format/batch_form.h"
#include "replay/format/batch_target.h"
#include "replay/format/protocol.h"
#include "replay/format/sampled_batch.h"

namespace replicant::replay {

enum class BatchState : uint8_t {
  kFull = 0,     // as many items as requested
  kTimeout = 1,  // the items that were admitted by the deadline
  kClosed = 2,   // the service ends
};

// An encoded batch holds the rows of each item (replay/format/batch_form.h) and
// the frames that it needs. The frames stay compressed, in segments: frame
// blocks (replay/format/frame_codec.h) cut out of the chunks. Frame
// skip + i of a segment is the frame of step first_step + i,
// 0 <= i < num_frames.
//
// If the reader shares memory, rows and segments are written there. Items of
// uncompressed chunks have no segments: their frames are written in place.
// Segments that do not fit travel with the message.
//
// A reader that keeps frame blocks (KeptRange) needs no bytes of the segments
// in its range: they have none, name the chunk's whole block by its serial, and
// count `skip` in it.

// Makes the message of `batch`, which was drawn from a table with this form.
// This is the only place where the service copies the bytes. `target` was
// checked for these items, or is nullptr. Throws InvalidArgument before it
// allocates a part longer than `max_part_bytes`.
rpc::Message EncodeBatch(const SampledBatch& batch, BatchState state,
                         const StepShape& shape, const BatchForm& form,
                         size_t max_part_bytes,
                         const BatchTarget* target = nullptr,
                         const KeptRange& kept = {});

}  // namespace replicant::replay
