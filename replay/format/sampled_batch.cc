#include "replay/format/sampled_batch.h"

#include "base/check.h"

namespace replicant::replay {

const Group& SampledBatch::GroupOf(const SampledItem& item,
                                   int64_t step) const {
  for (int64_t i = 0; i < item.num_groups; ++i) {
    const Group& group = *groups[static_cast<size_t>(item.first_group + i)];
    if (step < group.view.end_observation() &&
        step >= group.view.first_step()) {
      return group;
    }
  }
  REPLICANT_CHECK(false, "step {} is not in the groups of the item at step {}",
                  step, item.step);
}

}  // namespace replicant::replay
