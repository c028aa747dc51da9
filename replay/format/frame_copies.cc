// Frames are scattered over gigabytes, and the processor fetches ahead within a
// page only. So the next frame's lines are fetched while a frame is copied.
#include "replay/format/frame_copies.h"

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace replicant::replay {
namespace {

// the baseline has what this needs: no choice at run time
namespace hn = hwy::HWY_NAMESPACE;

constexpr hn::ScalableTag<uint8_t> kByteTag{};
constexpr size_t kLine = 64;
constexpr size_t kPage = 4096;
// Fewer bytes may still be in a cache when they are read.
constexpr size_t kStreamedBytes = size_t{4} << 20;

const uint8_t* Unsigned(const std::byte* p) {
  return reinterpret_cast<const uint8_t*>(p);
}
uint8_t* Unsigned(std::byte* p) { return reinterpret_cast<uint8_t*>(p); }

void CopyCached(const FrameCopy& copy, const FrameCopy& next,
                size_t frame_bytes) {
  for (size_t offset = 0; offset < frame_bytes; offset += kPage) {
    __builtin_prefetch(next.from + offset, /*rw=*/0);
    __builtin_prefetch(next.to + offset, /*rw=*/1);
  }
  std::memcpy(copy.to, copy.from, frame_bytes);
}

void CopyStreamed(const FrameCopy& copy, const FrameCopy& next,
                  size_t frame_bytes) {
  const uint8_t* from = Unsigned(copy.from);
  const uint8_t* ahead = Unsigned(next.from);
  uint8_t* to = Unsigned(copy.to);
  size_t left = frame_bytes;
  // lines are written whole
  const size_t head =
      std::min(left, (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine);
  std::memcpy(to, from, head);
  from += head;
  to += head;
  left -= head;
  for (; left >= kLine; left -= kLine) {
    hwy::Prefetch(ahead);
    for (size_t i = 0; i < kLine; i += hn::Lanes(kByteTag)) {
      hn::Stream(hn::LoadU(kByteTag, from + i), kByteTag, to + i);
    }
    from += kLine;
    to += kLine;
    ahead += kLine;
  }
  std::memcpy(to, from, left);
}

}  // namespace

void CopyFrames(std::span<const FrameCopy> copies, size_t frame_bytes) {
  const bool is_streamed = copies.size() * frame_bytes >= kStreamedBytes;
  for (size_t i = 0; i < copies.size(); ++i) {
    const FrameCopy& next = copies[std::min(i + 1, copies.size() - 1)];
    if (is_streamed) {
      CopyStreamed(copies[i], next, frame_bytes);
    } else {
      CopyCached(copies[i], next, frame_bytes);
    }
  }
  // before another thread is told of them
  if (is_streamed) hwy::FlushStream();
}

}  // namespace replicant::replay
