#pragma once

#include <cstdint>

#include "agents/exploration.h"
#include "core/config/reader.h"
#include "replay/format/frame_codec.h"

namespace replicant::actors {

// Section `actors`: who acts, and how their steps travel.
struct ActorsConfig {
  int64_t count = 1;         // processes
  int64_t environments = 1;  // of one process, stepped together
  int env_threads = 0;       // 0: the actor's own thread steps them
  agents::ExplorationConfig exploration;
  // Steps that are sent, stored and evicted together; their frames share a
  // dictionary (replay/format/frame_codec.h).
  int64_t group_steps = 8;
  replay::FrameCodec codec = replay::FrameCodec::kLz4;
  // Groups of one environment that wait to be sent before the actor waits. Few
  // of them keep the replay close to what the policy does now.
  int64_t queue_groups = 64;
  // An episode is given up when the replay takes nothing in for so long.
  double append_timeout_s = 60.0;

  static ActorsConfig Read(config::Reader& reader);
};

}  // namespace replicant::actors
