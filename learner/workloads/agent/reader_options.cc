#include "learner/workloads/agent/reader_options.h"

#include <algorithm>
#include <cstdint>

#include "base/thread.h"

namespace replicant::learner {
namespace {

// Threads that decode frames while the learner steps. A step that uses all
// processors decodes its own frames: another thread would only delay it. A
// GPU's step of a millisecond wants more frames than one thread decodes.
int64_t DecodeThreadsBeside(const replicator::ReplicationConfig& replication) {
  constexpr int64_t kMaxThreads = 4;
  const int64_t threads =
      replication.backend == "cpu" ? replication.threads : 1;
  const auto processors = static_cast<int64_t>(CpuSet::OfThisThread().size());
  return std::clamp<int64_t>(processors - threads * replication.replicas, 0,
                             kMaxThreads);
}

}  // namespace

replay::BatchReaderOptions ReaderOptionsOf(const LearnerConfig& learner) {
  replay::BatchReaderOptions reader;
  reader.batch_size = learner.batch_size;
  reader.importance = learner.importance;
  reader.kept_frames = learner.frame_store;
  // a kept frame is read where it lies, or is on the device already
  reader.fills_frames = learner.frame_store.max_bytes == 0;
  reader.decode_threads = DecodeThreadsBeside(learner.replication);
  // each decode thread has a batch, and the step one
  reader.prefetch = std::max(reader.prefetch, reader.decode_threads + 1);
  return reader;
}

}  // namespace replicant::learner
