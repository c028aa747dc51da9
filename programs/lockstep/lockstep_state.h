#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "actors/actor.h"
#include "replay/client/local_replay.h"

namespace replicant::programs {

// The state of a lockstep training besides the learner's variables and the
// replay's shard: actor and writers in the middle of their episodes.
struct LockstepState {
  actors::ActorState actor;
  // by environment
  std::vector<replay::LocalReplay::Writer::State> writers;
  // LocalReplay::waiting()
  std::vector<uint64_t> waiting;
};

// A .safetensors file: i64 "actor" [2], "episodes" [E], "writers" [E, 3] and
// "waiting" [W], f32 "actions/E" of each environment, with the fields in the
// order of the structs. Throws IoError if it cannot be written.
void WriteLockstepState(const std::filesystem::path& path,
                        const LockstepState& state);
// Throws IoError for a file that cannot be read or holds something else.
LockstepState ReadLockstepState(const std::filesystem::path& path);

}  // namespace replicant::programs
