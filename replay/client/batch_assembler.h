#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/thread.h"
#include "replay/client/batch.h"
#include "replay/client/importance_weights.h"
#include "replay/format/batch_message.h"
#include "replay/format/batch_target.h"

namespace replicant::replay {

// A batch that is being filled by the replies of services, one part each.
struct BatchAssembly {
  // One service's reply.
  struct Part {
    int32_t shard;
    double share;  // probability that a draw goes to this service
    int64_t first_row;
    BatchMessage message;
  };

  Batch batch;
  int64_t missing = 0;  // rows
  std::vector<Part> parts;
  bool is_given_up = false;  // another assembly has replaced this one
};

// Makes batches from the replies of services: provides their memory, decodes
// and stacks the frames in its own threads (or leaves frames compressed for the
// user of the batch), and sets the importance weights.
//
// The buffers of a batch lie in memory that services of this host can write to
// (base/rpc/shared_memory.h). Rows and uncompressed frames arrive in place;
// compressed frames are decoded from that memory.
//
// Thread-safety: one thread at a time; that thread and the decode threads call
// on_ready and on_failure.
class BatchAssembler {
 public:
  struct Options {
    std::string name;  // of the reader, for messages
    StepShape shape;
    int64_t batch_size = 256;
    // 0 leaves frames compressed, for Batch::FramesOf().
    int64_t decode_threads = 1;
    // Whether decode threads copy every frame into the buffers of the batch. If
    // not they decode the compressed ones, for Batch::FramesOf().
    bool fills_frames = true;
    ImportanceSchedule importance = {};
    bool shares_memory = true;
    // Receives each complete batch.
    std::function<void(Batch)> on_ready;
    // Called while the exception that ends a decode thread is being handled.
    std::function<void()> on_failure;
  };

  explicit BatchAssembler(Options options);
  ~BatchAssembler();
  BatchAssembler(const BatchAssembler&) = delete;
  BatchAssembler& operator=(const BatchAssembler&) = delete;

  // Returns an assembly without rows. It reuses the buffers of `spare` if they
  // fit. New buffers are in shared memory if `takes_memory`, which means that
  // some service would write there.
  std::shared_ptr<BatchAssembly> Begin(Batch spare, const BatchForm& form,
                                       bool takes_memory);
  // The place where a service may write these rows, beside what the parts so
  // far use; std::nullopt if the buffers are not shared.
  std::optional<BatchTarget> TargetOf(const BatchAssembly& assembly,
                                      int64_t first_row, int64_t count) const;
  // Completes the batch of an assembly that has all rows: at once if there is
  // nothing to decode, else in a decode thread. Throws what
  // BatchMessage::LocateFrames() throws.
  void Finish(std::shared_ptr<BatchAssembly> assembly) EXCLUDES(mutex_);

  // Ends the decode threads and drops assemblies that no thread has started on.
  void Close() EXCLUDES(mutex_);

 private:
  // Makes the buffers of `batch`.
  void Prepare(Batch& batch, const BatchForm& form, bool takes_memory);
  void Decode() EXCLUDES(mutex_);
  // Fills the batch from its parts; without a room frames stay compressed.
  void Fill(BatchAssembly& assembly, FrameRoom* room) const;

  const Options options_;
  bool can_share_memory_;
  FrameRoom unused_room_;

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::shared_ptr<BatchAssembly>> received_ GUARDED_BY(mutex_);
  bool is_closed_ GUARDED_BY(mutex_) = false;

  // last: they use all of the above
  std::vector<std::unique_ptr<Thread>> threads_;
};

}  // namespace replicant::replay
