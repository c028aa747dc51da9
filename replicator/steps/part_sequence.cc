#include "replicator/steps/part_sequence.h"

namespace replicant::replicator {

bool PartSequence::Advance(const RunPart& run_part) {
  const int64_t batch = next_batch_;
  next_batch_ = (next_batch_ + 1) % batches_per_update_;
  const bool keeps = num_parts_ > 1 && batches_per_update_ > 1;

  input_.Use();
  if (keeps) input_.Keep(static_cast<size_t>(batch));
  if (!run_part(0, batch)) return false;
  if (!IsLast(batch)) return true;

  for (size_t part = 1; part < num_parts_; ++part) {
    for (int64_t kept = 0; kept < batches_per_update_; ++kept) {
      if (keeps) input_.Recall(static_cast<size_t>(kept));
      if (!run_part(part, kept)) return false;
    }
  }
  return true;
}

}  // namespace replicant::replicator
