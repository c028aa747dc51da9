#include "actors/actors_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "replay/format/chunk_format.h"

namespace replicant::actors {

ActorsConfig ActorsConfig::Read(config::Reader& reader) {
  ActorsConfig c;
  reader.Field("count", &c.count, {1, kMaxActors}, "number of actor processes");
  reader.Field("environments", &c.environments, {1, 4096},
               "environments of one actor; they act in one batch");
  reader.Field("env_threads", &c.env_threads, {0, 256},
               "threads that step the environments of an actor; 0 for the "
               "actor's own thread");
  reader.Section("exploration", &c.exploration, "noise on the actions");
  reader.Section("hindsight", &c.hindsight,
                 "goals in hindsight, for environments with goals");
  reader.Field(
      "inference", &c.inference,
      {{"actor", InferencePlace::kActor}, {"host", InferencePlace::kHost}},
      "where the policy is computed: actor: in each actor, for its "
      "environments; host: in one inference server for all actors, in batches");
  reader.Field(
      "inference_backend", &c.inference_backend,
      {{"cpu", InferenceBackend::kCpu}, {"cuda", InferenceBackend::kCuda}},
      "backend of the inference server's policy (inference: host); cuda (not "
      "yet run on a device) shares the host's first GPU with a learner there");
  reader.Field("inference_threads", &c.inference_threads, {1, 1024},
               "threads of the inference server's policy (inference: host)");
  reader.Field("inference_bind", &c.inference_bind,
               "address at which the inference server listens; auto: a socket "
               "of this host, with hosts that join a free port of "
               "cluster.address, and with cluster.inference_on_host one of the "
               "server's host (inference: host)");
  reader.Field("inference_wait_ms", &c.inference_wait_ms, {0.1, 10000.0},
               "milliseconds for which an observation waits for observations "
               "of other actors (inference: host)");
  reader.Field("group_steps", &c.group_steps, {1, replay::kMaxChunkSteps},
               "steps that are sent, stored and removed together");
  reader.Field("codec", &c.codec,
               {{"none", replay::FrameCodec::kNone},
                {"lz4", replay::FrameCodec::kLz4},
                {"zstd", replay::FrameCodec::kZstd}},
               "compression of the frames");
  reader.Field("queue_groups", &c.queue_groups, {1, 100'000},
               "maximum number of chunks per environment that wait to be "
               "sent; beyond it the actor waits. A short queue keeps the "
               "replay close to the current policy");
  reader.Field("append_timeout_s", &c.append_timeout_s, {0.01, 1e6},
               "seconds that an actor waits for room in the replay before it "
               "drops the episode");
  const int64_t longest_hold = std::max(c.exploration.initial_hold_steps,
                                        c.exploration.final_hold_steps);
  if (c.inference == InferencePlace::kHost && longest_hold > 1) {
    reader.Error(
        "inference",
        fmt::format("host draws new noise for each batch, but exploration "
                    "holds a draw for {} steps; allowed: actor, or "
                    "exploration.initial_hold_steps and final_hold_steps: 1",
                    longest_hold));
  }
  return c;
}

}  // namespace replicant::actors
