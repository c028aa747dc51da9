// Frame blocks come from actors and from disk. For any bytes the decoder gives
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
  using replicant::replay::FrameBlockView;
  using replicant::replay::FrameDecoder;
  try {
    const FrameBlockView block(std::as_bytes(std::span(data, size)));
    // a large frame would only make the run slow
    if (block.frame_bytes() > 1 << 16) return 0;
    const auto bytes = static_cast<size_t>(block.frame_bytes());
    const int64_t last = block.num_frames() - 1;
    std::vector<std::byte> frame(bytes), again(bytes);
    FrameDecoder decoder;
    decoder.Decode(block, last, 1, frame);

    std::vector<std::byte> copy(block.SubsetBytes(last, 1));
    block.WriteSubset(last, 1, copy);
    const FrameBlockView subset(copy);
    decoder.Decode(subset, block.SubsetIndex(last), 1, again);
    REPLICANT_CHECK(frame == again, "the subset decodes to another frame");
  } catch (const replicant::IoError&) {
  }
  return 0;
}
