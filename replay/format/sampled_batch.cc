#include "replay/format/sampled_batch.h"

#include "base/check.h"

namespace replicant::replay {

const Chunk& SampledBatch::ChunkOf(const SampledItem& item,
                                   int64_t step) const {
  for (int64_t i = 0; i < item.num_chunks; ++i) {
    const Chunk& chunk = *chunks[static_cast<size_t>(item.first_chunk + i)];
    if (step < chunk.view.end_observation() &&
        step >= chunk.view.first_step()) {
      return chunk;
    }
  }
  REPLICANT_CHECK(false, "step {} is not in the chunks of the item at step {}",
                  step, item.step);
}

}  // namespace replicant::replay
