#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "actors/actor.h"
#include "actors/hindsight.h"
#include "actors/policy_runner.h"
#include "learner/workload.h"
#include "replay/checkpoint/checkpointer.h"
#include "replay/client/batch_source.h"
#include "replay/client/local_replay.h"

namespace replicant::programs {

// Draws batches from a replay in this process, and steps the actor whenever the
// rate limiter holds a batch back. The configuration alone thus decides the
// order in which actor, replay and learner take turns.
//
// Its checkpoints hold the replay's shard and the unfinished work of actor and
// writers: a run that resumes from one equals, bit for bit, a run that was not
// stopped.
//
// Thread-safety: one thread makes all calls.
class LockstepSource : public replay::BatchSource {
 public:
  // Both outlive the source.
  LockstepSource(replay::LocalReplay* replay, actors::PolicyRunner* policy)
      : replay_(*replay), policy_(*policy) {}

  // Sets the parts that are made after the source. Call this before any other
  // method. All outlive the source's last call; `writers`, one per environment,
  // take what `sinks`, the actor's, pass on, and `checkpointer` saves the shard
  // of the replay.
  void Connect(actors::Actor* actor, actors::HindsightSinks* sinks,
               std::vector<replay::LocalReplay::Writer>* writers,
               learner::Workload* workload, replay::Checkpointer* checkpointer);

  // Steps the actor, with the learner's newest policy, until the replay gives a
  // whole batch. A batch that has begun is completed even if the source is
  // paused.
  replay::ReadResult Next(Clock::TimePoint deadline,
                          replay::Batch* batch) override;
  void UpdatePriorities(const replay::Batch& batch,
                        std::span<const float> priorities) override;

  void SetLimit(int64_t num_batches) override { num_left_ = num_batches; }
  void SetPaused(bool is_paused) override { is_paused_ = is_paused; }
  // Saves the shard as number `id`, and the rest in `folder`. Everything is on
  // disk on return.
  void StartCheckpoint(uint64_t id,
                       const std::filesystem::path& folder) override;
  replay::CheckpointState PollCheckpoint() override {
    return replay::CheckpointState::kSaved;
  }
  // Restores actor and writers from the state that StartCheckpoint() wrote to
  // `folder`; the shard must already hold that checkpoint. Throws IoError, and
  // what Actor::Restore() throws.
  void Restore(const std::filesystem::path& folder);
  // Returns why that state cannot be read, or "" if it can.
  static std::string FindDamage(const std::filesystem::path& folder);

 private:
  // Copies the learner's variables to the actor's policy if they have changed.
  void UpdatePolicy();

  replay::LocalReplay& replay_;
  actors::PolicyRunner& policy_;
  actors::Actor* actor_ = nullptr;
  actors::HindsightSinks* sinks_ = nullptr;
  std::vector<replay::LocalReplay::Writer>* writers_ = nullptr;
  learner::Workload* workload_ = nullptr;
  replay::Checkpointer* checkpointer_ = nullptr;
  bool has_learned_ = true;  // since the last UpdatePolicy()
  bool is_paused_ = false;
  int64_t num_left_ = std::numeric_limits<int64_t>::max();  // of batches
};

}  // namespace replicant::programs
