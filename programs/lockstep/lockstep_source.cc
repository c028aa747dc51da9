#include "programs/lockstep/lockstep_source.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "programs/lockstep/lockstep_state.h"

namespace replicant::programs {
namespace {

// In the folder of a checkpoint: the state of actor and writers.
constexpr const char* kStateFile = "lockstep.safetensors";

}  // namespace

void LockstepSource::Connect(actors::Actor* actor,
                             actors::HindsightSinks* sinks,
                             std::vector<replay::LocalReplay::Writer>* writers,
                             learner::Workload* workload,
                             replay::Checkpointer* checkpointer) {
  actor_ = actor;
  sinks_ = sinks;
  writers_ = writers;
  workload_ = workload;
  checkpointer_ = checkpointer;
}

replay::ReadResult LockstepSource::Next(Clock::TimePoint deadline,
                                        replay::Batch* batch) {
  if (num_left_ <= 0 || (is_paused_ && !replay_.IsDrawing()))
    return replay::ReadResult::kPaused;
  while (!replay_.Next(batch)) {
    if (Clock::Real().Now() >= deadline) return replay::ReadResult::kTimeout;
    UpdatePolicy();
    // items that wait for the rate limiter are inserted by the next draws
    static_cast<void>(replay_.MayWrite());
    actor_->Step();
  }
  --num_left_;
  return replay::ReadResult::kOk;
}

void LockstepSource::UpdatePriorities(const replay::Batch& batch,
                                      std::span<const float> priorities) {
  replay_.UpdatePriorities(batch, priorities);
  has_learned_ = true;
}

void LockstepSource::StartCheckpoint(uint64_t id,
                                     const std::filesystem::path& folder) {
  LockstepState state{.actor = actor_->state(), .waiting = replay_.waiting()};
  for (const auto& writer : *writers_) state.writers.push_back(writer.state());
  WriteLockstepState(folder / kStateFile, state);
  checkpointer_->Save(replay_.shard().TakeSnapshot(), id);
}

void LockstepSource::Restore(const std::filesystem::path& folder) {
  const LockstepState state = ReadLockstepState(folder / kStateFile);
  for (size_t e = 0; e < std::min(state.writers.size(), writers_->size());
       ++e) {
    (*writers_)[e].Restore(state.writers[e]);
  }
  replay_.set_waiting(state.waiting);
  sinks_->SetRepeating(true);
  actor_->Restore(state.actor);
  sinks_->SetRepeating(false);
}

std::string LockstepSource::FindDamage(const std::filesystem::path& folder) {
  try {
    static_cast<void>(ReadLockstepState(folder / kStateFile));
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

void LockstepSource::UpdatePolicy() {
  if (!has_learned_) return;
  for (const std::string& name : workload_->PublishedVariables()) {
    policy_.variables().Set(name, workload_->variables().Get(name).view());
  }
  has_learned_ = false;
}

}  // namespace replicant::programs
