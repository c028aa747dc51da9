#include "learner/workloads/agent/transition_source.h"

#include <chrono>

#include "core/base/check.h"
#include "core/base/error.h"

namespace replicant::learner {
namespace {

// Gigabytes of steps may have to be written.
constexpr auto kCheckpointTimeout = std::chrono::minutes(30);

}  // namespace

void RemoteTransitions::StartCheckpoint(
    uint64_t id, const std::filesystem::path& /*folder*/) {
  reader_.StartCheckpoint(id, Clock::Real().Now() + kCheckpointTimeout);
}

InputPart RemoteTransitions::PollCheckpoint() {
  switch (reader_.PollCheckpoint()) {
    case replay::CheckpointState::kPending:
      return InputPart::kPending;
    case replay::CheckpointState::kSaved:
      return InputPart::kSaved;
    case replay::CheckpointState::kNotKept:
      return InputPart::kNone;
    case replay::CheckpointState::kLate:
      throw CommError("the replay has not saved its checkpoint in time");
  }
  REPLICANT_CHECK(false, "no such state");
}

}  // namespace replicant::learner
