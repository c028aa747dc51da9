#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/rpc/frame.h"
#include "base/thread.h"
#include "replay/format/batch_codec.h"

namespace replicant::replay {

// A drawn batch and the form that its reader expects.
struct EncodeJob {
  SampledBatch batch;
  BatchState state = BatchState::kFull;
  StepShape shape;
  BatchForm form;
  size_t max_part_bytes = 0;
  std::optional<BatchTarget> target;
  KeptRange kept;  // by the reader
};

// Calls EncodeBatch() with the fields of the job.
rpc::Message Encode(const EncodeJob& job);

// Encodes batches in its own threads, so that copying megabytes of frames does
// not delay the service's other messages.
//
// Thread-safety: one thread; the encoder's threads call `done`.
class BatchEncoder {
 public:
  // Called with the message, or with an empty one and the error.
  using Done = std::function<void(rpc::Message message, std::string error)>;

  // Throws InvalidArgument unless num_threads is in [1, 64].
  explicit BatchEncoder(int64_t num_threads);
  // Calls Stop().
  ~BatchEncoder();
  BatchEncoder(const BatchEncoder&) = delete;
  BatchEncoder& operator=(const BatchEncoder&) = delete;

  void Start(EncodeJob job, Done done) EXCLUDES(mutex_);
  // Waits for the jobs that are being encoded and drops the others. `done` is
  // not called afterwards.
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
