#pragma once

#include <cstddef>
#include <span>

namespace replicant::replay {

// An uncompressed frame and its place in a batch.
struct FrameCopy {
  const std::byte* from;
  std::byte* to;
};

// Copies frames of `frame_bytes` bytes each. Many megabytes go past the
// processor's caches, which would keep none of them: without the read of every
// line before it is written, memory moves two thirds of the bytes.
void CopyFrames(std::span<const FrameCopy> copies, size_t frame_bytes);

}  // namespace replicant::replay
