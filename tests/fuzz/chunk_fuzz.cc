// Chunks come from writers and from disk. Any bytes are refused with an
// IoError, or every row of them can be read.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"
#include "replay/format/chunk_format.h"

namespace {

volatile float sink;

// Reads one byte of every row, for the sanitizer to see.
void ReadAll(const replicant::replay::ChunkView& chunk) {
  float sum = 0.0f;
  for (int64_t i = 0; i < chunk.num_steps(); ++i) {
    sum += chunk.reward(i) + chunk.discount(i);
    if (chunk.has_priorities()) sum += chunk.priority(i);
    for (const std::byte b : chunk.Action(i)) sum += static_cast<float>(b);
  }
  for (int64_t i = 0; i < chunk.num_observations(); ++i) {
    for (const std::byte b : chunk.Observation(i)) sum += static_cast<float>(b);
  }
  for (const std::byte b : chunk.frames()) sum += static_cast<float>(b);
  sink = sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto block = std::as_bytes(std::span(data, size));
  using replicant::replay::StepShape;
  for (const StepShape& shape :
       {StepShape{.observation_bytes = 3, .action_bytes = 2},
        StepShape{.action_bytes = 2, .frame_bytes = 16}}) {
    try {
      ReadAll(replicant::replay::ChunkView(block, shape));
    } catch (const replicant::IoError&) {
    }
  }
  return 0;
}
