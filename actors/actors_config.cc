#include "actors/actors_config.h"

#include "replay/format/step_group.h"

namespace replicant::actors {

ActorsConfig ActorsConfig::Read(config::Reader& reader) {
  ActorsConfig c;
  reader.Field("count", &c.count, {1, 100'000}, "actor processes");
  reader.Field("environments", &c.environments, {1, 4096},
               "environments of one process, which act together");
  reader.Field("env_threads", &c.env_threads, {0, 256},
               "threads that step them; 0 for the actor's own");
  reader.Section("exploration", &c.exploration, "noise on the actions");
  reader.Field("group_steps", &c.group_steps, {1, replay::kMaxGroupSteps},
               "steps that are sent and stored together");
  reader.Field("codec", &c.codec,
               {{"none", replay::FrameCodec::kNone},
                {"lz4", replay::FrameCodec::kLz4},
                {"zstd", replay::FrameCodec::kZstd}},
               "how frames are compressed");
  reader.Field("queue_groups", &c.queue_groups, {1, 100'000},
               "step groups of an environment that wait for the replay before "
               "its actor does; few keep the replay close to the policy");
  reader.Field("append_timeout_s", &c.append_timeout_s, {0.01, 1e6},
               "seconds without room in the replay after which an episode is "
               "given up");
  return c;
}

}  // namespace replicant::actors
