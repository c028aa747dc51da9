#include "replicator/steps/phase_sequence.h"

namespace replicant::replicator {

bool PhaseSequence::Advance(const RunPhase& run_phase) {
  const int64_t batch = next_batch_;
  next_batch_ = (next_batch_ + 1) % batches_per_update_;
  const bool keeps = num_phases_ > 1 && batches_per_update_ > 1;

  input_.Use();
  if (keeps) input_.Keep(static_cast<size_t>(batch));
  if (!run_phase(0, batch)) return false;
  if (!IsLast(batch)) return true;

  for (size_t phase = 1; phase < num_phases_; ++phase) {
    for (int64_t kept = 0; kept < batches_per_update_; ++kept) {
      if (keeps) input_.Recall(static_cast<size_t>(kept));
      if (!run_phase(phase, kept)) return false;
    }
  }
  return true;
}

}  // namespace replicant::replicator
