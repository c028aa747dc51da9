#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/mutex.h"
#include "core/base/thread.h"
#include "core/rpc/frame.h"
#include "replay/format/batch_codec.h"

namespace replicant::replay {

// A batch that was drawn, on its way to its reader.
struct EncodeJob {
  SampledBatch batch;
  BatchState state = BatchState::kFull;
  StepShape shape;
  int64_t stack = 1;
  size_t max_part_bytes = 0;
  std::optional<BatchTarget> target;
};

// EncodeBatch(job).
rpc::Message Encode(const EncodeJob& job);

// Encodes batches in threads of its own: copying some megabytes must not hold
// up the messages behind.
//
// Thread-safety: for one thread; `done` is called in the encoder's.
class BatchEncoder {
 public:
  // Gets the message, or an empty one and why there is none.
  using Done = std::function<void(rpc::Message message, std::string error)>;

  // Throws InvalidArgument unless num_threads is in [1, 64].
  explicit BatchEncoder(int64_t num_threads);
  // Stops.
  ~BatchEncoder();
  BatchEncoder(const BatchEncoder&) = delete;
  BatchEncoder& operator=(const BatchEncoder&) = delete;

  void Start(EncodeJob job, Done done) EXCLUDES(mutex_);
  // Finishes what is being encoded and drops the rest: `done` is not called
  // after this.
  void Stop() EXCLUDES(mutex_);

 private:
  void Run(const Thread::StopToken& stop) EXCLUDES(mutex_);

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::pair<EncodeJob, Done>> jobs_ GUARDED_BY(mutex_);
  bool is_stopped_ GUARDED_BY(mutex_) = false;
  std::vector<std::unique_ptr<Thread>> threads_;  // last: they use the above
};

}  // namespace replicant::replay
