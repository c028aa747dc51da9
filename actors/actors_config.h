#pragma once

#include <cstdint>
#include <string>

#include "actors/hindsight.h"
#include "agents/exploration.h"
#include "base/config/reader.h"
#include "replay/format/frame_codec.h"

namespace replicant::actors {

// Maximum number of actor processes of a run.
inline constexpr int64_t kMaxActors = 100'000;

// Process that computes the actors' policy.
enum class InferencePlace {
  kActor,  // by each actor for its own environments
  kHost    // by one server of the host for all of its actors, in batches
};

// Backend of that server's policy.
enum class InferenceBackend { kCpu, kCuda };

// Section `actors`: the actor processes, and how they send their steps.
struct ActorsConfig {
  int64_t count = 1;         // processes
  int64_t environments = 1;  // of one process, stepped together
  int env_threads = 0;       // 0: the actor's own thread steps them
  agents::ExplorationConfig exploration;
  HindsightConfig hindsight;
  InferencePlace inference = InferencePlace::kActor;
  InferenceBackend inference_backend = InferenceBackend::kCpu;
  int64_t inference_threads = 1;
  double inference_wait_ms = 2.0;
  std::string inference_bind = "auto";
  // Steps that are sent, stored and evicted together; their frames share a
  // dictionary (replay/format/frame_codec.h).
  int64_t group_steps = 8;
  replay::FrameCodec codec = replay::FrameCodec::kLz4;
  // Maximum number of groups per environment that wait to be sent; then the
  // actor waits. A short queue keeps the replay close to the current policy.
  int64_t queue_groups = 64;
  // Maximum wait for room in the replay; then the episode is dropped.
  double append_timeout_s = 60.0;

  static ActorsConfig Read(config::Reader& reader);
};

}  // namespace replicant::actors
