// Frame groups come from actors and from disk. For any bytes the decoder gives
// frames or an IoError, and the part sent to a reader decodes to the same
// frames.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "replay/format/frame_codec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using replicant::replay::FrameDecoder;
  using replicant::replay::FrameGroupView;
  try {
    const FrameGroupView group(std::as_bytes(std::span(data, size)));
    // a large frame would only make the run slow
    if (group.frame_bytes() > 1 << 16) return 0;
    const auto bytes = static_cast<size_t>(group.frame_bytes());
    const int64_t last = group.num_frames() - 1;
    std::vector<std::byte> frame(bytes), again(bytes);
    FrameDecoder decoder;
    decoder.Decode(group, last, 1, frame);

    std::vector<std::byte> block(group.SubsetBytes(last, 1));
    group.WriteSubset(last, 1, block);
    const FrameGroupView subset(block);
    decoder.Decode(subset, group.SubsetIndex(last), 1, again);
    REPLICANT_CHECK(frame == again, "the subset decodes to another frame");
  } catch (const replicant::IoError&) {
  }
  return 0;
}
