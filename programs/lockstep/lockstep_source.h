#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "actors/actor.h"
#include "actors/policy_runner.h"
#include "learner/workload.h"
#include "replay/checkpoint/checkpointer.h"
#include "replay/client/batch_source.h"
#include "replay/client/local_replay.h"

namespace replicant::programs {

// Draws batches from a replay of this process and lets the actor act whenever
// the rate limiter holds a batch back. So actor, replay and learner take turns
// in an order that the configuration alone decides.
//
// Its checkpoints hold the replay's shard and what actor and writers are in the
// middle of: a run that goes on from one equals, to the bit, a run that was not
// stopped.
//
// Thread-safety: one thread makes all calls.
class LockstepSource : public replay::BatchSource {
 public:
  // `checkpointer` saves the shard of `replay`. All outlive the source.
  LockstepSource(replay::LocalReplay* replay,
                 replay::Checkpointer* checkpointer,
                 actors::PolicyRunner* policy)
      : replay_(*replay), checkpointer_(*checkpointer), policy_(*policy) {}

  // Names the parts that need the source, or what needs it, to be made. Call
  // this before any other method. All outlive the source's last call;
  // `writers`, one per environment, are the actor's sinks.
  void Connect(actors::Actor* actor,
               std::vector<replay::LocalReplay::Writer>* writers,
               learner::Workload* workload);

  // Steps the actor, with the learner's newest policy, until the replay gives a
  // whole batch. A batch that is begun is drawn to its end even while the
  // source is paused.
  replay::ReadResult Next(Clock::TimePoint deadline,
                          replay::Batch* batch) override;
  void UpdatePriorities(const replay::Batch& batch,
                        std::span<const float> priorities) override;

  void SetPaused(bool is_paused) override { is_paused_ = is_paused; }
  // Saves the shard as number `id`, and the rest in `folder`. All of it is on
  // disk on return.
  void StartCheckpoint(uint64_t id,
                       const std::filesystem::path& folder) override;
  replay::CheckpointState PollCheckpoint() override {
    return replay::CheckpointState::kSaved;
  }
  // Brings actor and writers to the state that StartCheckpoint() wrote to
  // `folder`; the shard must hold that checkpoint already. Throws IoError, and
  // what Actor::Restore() throws.
  void Restore(const std::filesystem::path& folder);

 private:
  // Gives the actor's policy the learner's variables if they have changed.
  void UpdatePolicy();

  replay::LocalReplay& replay_;
  replay::Checkpointer& checkpointer_;
  actors::PolicyRunner& policy_;
  actors::Actor* actor_ = nullptr;
  std::vector<replay::LocalReplay::Writer>* writers_ = nullptr;
  learner::Workload* workload_ = nullptr;
  bool has_learned_ = true;  // since the last UpdatePolicy()
  bool is_paused_ = false;
};

}  // namespace replicant::programs
