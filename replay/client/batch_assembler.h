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
#include "replay/client/batch.h"
#include "replay/format/batch_codec.h"

namespace replicant::replay {

// A batch on its way: its rows come from the services in parts.
struct BatchAssembly {
  // What one service has given.
  struct Part {
    int32_t shard;
    double share;  // with which a draw went to the service
    int64_t first_row;
    BatchMessage message;
  };

  Batch batch;
  int64_t missing = 0;  // rows
  std::vector<Part> parts;
  bool is_given_up = false;  // another has taken its place
};

// Makes batches of what services reply: gives them memory, decompresses and
// stacks the frames in threads of its own, or leaves that to whoever uses the
// batch, and weighs the items.
//
// The buffers of a batch lie in memory that the services of this host may write
// to (core/rpc/shared_memory.h): rows and uncompressed frames come straight to
// their place, compressed ones are decoded from there.
//
// Thread-safety: one thread at a time; on_ready and on_failure come from that
// one and from the decode threads.
class BatchAssembler {
 public:
  struct Options {
    std::string name;  // of the reader, for messages
    StepShape shape;
    int64_t batch_size = 256;
    // 0: compressed frames stay so, for Batch::StacksOf().
    int64_t decode_threads = 1;
    double importance_exponent = 0.0;
    bool shares_memory = true;
    // Takes what is complete.
    std::function<void(Batch)> on_ready;
    // Called in the handler of the exception that ends a decode thread.
    std::function<void()> on_failure;
  };

  explicit BatchAssembler(Options options);
  ~BatchAssembler();
  BatchAssembler(const BatchAssembler&) = delete;
  BatchAssembler& operator=(const BatchAssembler&) = delete;

  // An assembly that misses all rows. `spare` is a batch whose buffers may be
  // used again. New ones are in shared memory if `takes_memory`, which says
  // that some service would write there.
  std::shared_ptr<BatchAssembly> Begin(Batch spare, int64_t stack,
                                       bool takes_memory);
  // Where a service may write these rows; std::nullopt if the buffers are not
  // shared.
  std::optional<BatchTarget> TargetOf(const BatchAssembly& assembly,
                                      int64_t first_row, int64_t count) const;
  // Completes the batch of an assembly that misses nothing: at once, if there
  // is nothing to decode. Throws as BatchMessage::DecodeFrames() does.
  void Finish(std::shared_ptr<BatchAssembly> assembly) EXCLUDES(mutex_);

  // Ends the decode threads; what they have not begun is dropped.
  void Close() EXCLUDES(mutex_);

 private:
  // Gives `batch` buffers.
  void Prepare(Batch& batch, int64_t stack, bool takes_memory);
  void Decode() EXCLUDES(mutex_);
  // Without a decoder frames stay compressed.
  void Fill(BatchAssembly& assembly, FrameDecoder* decoder) const;

  const Options options_;
  bool can_share_memory_;
  FrameDecoder unused_decoder_;

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::shared_ptr<BatchAssembly>> received_ GUARDED_BY(mutex_);
  bool is_closed_ GUARDED_BY(mutex_) = false;

  // last: they use all of the above
  std::vector<std::unique_ptr<Thread>> threads_;
};

}  // namespace replicant::replay
