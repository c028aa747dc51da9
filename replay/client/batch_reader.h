#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/base/rng.h"
#include "core/base/thread.h"
#include "core/rpc/client.h"
#include "core/tensor/host_buffer.h"
#include "replay/client/batch.h"
#include "replay/client/batch_assembler.h"
#include "replay/format/batch_codec.h"
#include "replay/format/protocol.h"

namespace replicant::replay {

struct BatchReaderOptions {
  // One service each; a batch comes from all of them.
  std::vector<std::string> endpoints;
  std::string name = "reader";
  rpc::CurveRole curve = {};
  StepShape shape;
  std::string table = "default";
  int64_t batch_size = 256;
  // Batches that are asked for, on their way, or ready.
  int64_t prefetch = 2;
  // 0: compressed frames stay so, for Batch::StacksOf().
  int64_t decode_threads = 1;
  // The exponent of the importance weights, in [0, 1]; 0: all are 1.
  double importance_exponent = 0.0;
  // A service answers after this time with what it has; the rest is asked for
  // again.
  std::chrono::milliseconds wait = std::chrono::milliseconds(400);
  // Takes batches from services of this host through memory that it shares with
  // them; those of other hosts, and all without it, send them.
  bool shares_memory = true;
  uint64_t seed = 0;  // of the choice among the services
};

enum class [[nodiscard]] ReadResult{
    kOk, kTimeout, kClosed,
    // Every batch that was under way has been given, and the reader is paused.
    kPaused};

// How the checkpoint stands that was started last.
enum class [[nodiscard]] CheckpointState{
    kPending, kSaved,
    kLate,  // not saved by its deadline
    // A service has no folder for checkpoints: there will never be any.
    kNotKept};

// Counts since the reader was made.
struct BatchReaderMetrics {
  int64_t batches = 0;          // made ready
  int64_t received_bytes = 0;   // payload, without what came through memory
  int64_t memory_replies = 0;   // that came through shared memory
  int64_t partial_replies = 0;  // that held less than was asked for
  int64_t lost_requests = 0;    // without an answer: asked for again
  int64_t sent_updates = 0;
  int64_t dropped_updates = 0;  // a service was away, or slow
  int64_t ready_batches = 0;    // now
};

// Draws batches from one or more replay services, ahead of time.
//
// A thread of its own keeps `prefetch` batches under way; decode threads
// decompress and stack them into a batch's buffers, or leave that to whoever
// uses the batch, whose processors they would take. Each draw of a batch goes
// to service s with probability M_s / sum M, where M_s is the mass that its
// table stated last (replay/table/selector.h); so the probability of item i is
//
//   (M_s / sum M) P_i
//
// with P_i that of the draw within the service. That is exact whatever the
// masses have become meanwhile, because both factors are those of the draw.
//
// Services of this host write to the memory of a batch (BatchAssembler). One of
// which a reply was lost begins anew in other memory, as the reply could still
// be written.
//
// Thread-safety: Next(), UpdatePriorities(), metrics() and Close() may be
// called from any thread.
class BatchReader {
 public:
  // Connects in the background. Throws InvalidArgument for options outside
  // their range, CommError for an endpoint that cannot be parsed.
  explicit BatchReader(BatchReaderOptions options);
  ~BatchReader();
  BatchReader(const BatchReader&) = delete;
  BatchReader& operator=(const BatchReader&) = delete;

  // Swaps the next batch with `batch`, whose memory is used again. Throws
  // CommError if a service refuses this reader or its batches are broken.
  ReadResult Next(Clock::TimePoint deadline, Batch* batch) EXCLUDES(mutex_);

  // Sends a new priority for each item of `batch`, without waiting. Throws
  // InvalidArgument if one is negative or not finite, or not one for each.
  void UpdatePriorities(const Batch& batch, std::span<const float> priorities)
      EXCLUDES(mutex_);

  // While it is paused the reader asks for no batch: Next() gives those that
  // are under way, and then kPaused. So that a checkpoint counts no item as
  // sampled that nobody has seen.
  void SetPaused(bool is_paused) EXCLUDES(mutex_);
  // Next() will give no more than `num_batches` from now on, and then kPaused:
  // what nobody will take is not asked for. Those that are under way already
  // come in any case.
  void SetLimit(int64_t num_batches) EXCLUDES(mutex_);
  // Has every service write checkpoint `id`. It holds every priority that was
  // given before, and none that is given later; no batch is asked for until it
  // is sent. Forgets the checkpoint before. Throws InvalidArgument if `id` is
  // 0.
  void StartCheckpoint(uint64_t id, Clock::TimePoint deadline) EXCLUDES(mutex_);
  // Whether it is on the disk of all services. Throws CommError with the reason
  // if one cannot write it, or was restarted meanwhile.
  CheckpointState PollCheckpoint() EXCLUDES(mutex_);
  // StartCheckpoint(), and the end of it; one call at a time.
  CheckpointState Checkpoint(uint64_t id, Clock::TimePoint deadline)
      EXCLUDES(mutex_);

  // Ends all waits with kClosed; priorities that were given are sent first.
  void Close() EXCLUDES(mutex_);

  BatchReaderMetrics metrics() const EXCLUDES(mutex_);

 private:
  // Rows of a batch, asked for from one service.
  struct SampleInFlight {
    std::shared_ptr<BatchAssembly> assembly;
    int64_t first_row = 0;
    int64_t count = 0;
    double share = 0.0;  // M_s / sum M of the draw
    std::optional<BatchTarget> target;
  };
  struct Shard {
    std::string endpoint;
    std::unique_ptr<rpc::Client> client;
    bool is_checked = false;
    bool takes_memory = true;     // as far as is known
    Clock::TimePoint next_check;  // while it is not checked
    Clock::TimePoint down_until;  // its last request was lost
    double mass = 1.0;
    int64_t total_steps = 0;
    std::map<rpc::Client::RequestId, SampleInFlight> in_flight;
    std::optional<rpc::Client::RequestId> checkpoint_request;
  };
  // What StartCheckpoint() has asked for.
  struct CheckpointCall {
    uint64_t id = 0;
    Clock::TimePoint deadline;
    bool is_sent = true;
    size_t num_missing = 0;  // services that have not answered
    bool is_not_kept = false;
    std::string problem;
  };
  // Rows that no service could be asked for.
  struct Postponed {
    std::shared_ptr<BatchAssembly> assembly;
    int64_t first_row = 0;
    int64_t count = 0;
  };
  struct Update {
    int32_t shard;
    std::vector<PriorityUpdate> updates;
  };

  // Whether Next() has nothing to give, and will have nothing.
  bool IsDrained() const REQUIRES(mutex_) {
    return num_under_way_ == 0 && (is_paused_ || num_wanted_ <= 0);
  }

  // --- the network's thread ---
  void Run(const Thread::StopToken& stop);
  // One turn of its loop, without the wait; how long that may be.
  Clock::Duration RunOnce();
  bool CheckService(Shard& shard, bool is_needed);
  void AskForBatches() EXCLUDES(mutex_);
  std::shared_ptr<BatchAssembly> NewAssembly() EXCLUDES(mutex_);
  // Asks the services, by their masses, for rows of the batch.
  void Request(const std::shared_ptr<BatchAssembly>& assembly,
               int64_t first_row, int64_t count);
  void AskForPostponed();
  std::vector<double> Shares() const;
  void Receive(Shard& shard, int32_t index) EXCLUDES(mutex_);
  void HandleReply(Shard& shard, int32_t index, SampleInFlight in_flight,
                   rpc::CallReply reply) EXCLUDES(mutex_);
  // Takes what came; how many items that is.
  int64_t TakeReply(Shard& shard, int32_t index,
                    const SampleInFlight& in_flight, rpc::Message payload)
      EXCLUDES(mutex_);
  void HandleLoss(Shard& shard, const SampleInFlight& in_flight)
      EXCLUDES(mutex_);
  void HandOver(std::shared_ptr<BatchAssembly> assembly) EXCLUDES(mutex_);
  void SendUpdates() EXCLUDES(mutex_);
  void SendCheckpoint(uint64_t id, Clock::TimePoint deadline);
  CheckpointState StateOfCheckpoint() const REQUIRES(mutex_);
  void HandleCheckpointReply(Shard& shard, const rpc::CallReply& reply)
      EXCLUDES(mutex_);

  // --- the network's or a decode thread ---
  void PushReady(Batch batch) EXCLUDES(mutex_);
  void Fail() EXCLUDES(mutex_);

  const BatchReaderOptions options_;
  rpc::ZmqContext context_;
  std::vector<Shard> shards_;          // the network thread's
  std::vector<rpc::Client*> clients_;  // of shards_, for waiting
  // the network thread's
  RandomStream random_;
  std::vector<Postponed> postponed_;
  int64_t stack_ = 1;  // of the table, once a service has told it
  // wakes the network thread: room for a batch, priorities, the end
  rpc::WakeEvent wake_;

  mutable Mutex mutex_;
  CondVar ready_changed_;  // or is_closed_, failure_, checkpoint_
  std::deque<Batch> ready_ GUARDED_BY(mutex_);
  std::vector<Batch> spare_ GUARDED_BY(mutex_);
  std::deque<Update> updates_ GUARDED_BY(mutex_);
  // asked for and not yet given away
  int64_t num_under_way_ GUARDED_BY(mutex_) = 0;
  bool is_closed_ GUARDED_BY(mutex_) = false;
  bool is_paused_ GUARDED_BY(mutex_) = false;
  // that Next() may still give
  int64_t num_wanted_ GUARDED_BY(mutex_) = std::numeric_limits<int64_t>::max();
  CheckpointCall checkpoint_ GUARDED_BY(mutex_);
  std::exception_ptr failure_ GUARDED_BY(mutex_);
  BatchReaderMetrics metrics_ GUARDED_BY(mutex_);

  // last: their threads use all of the above
  BatchAssembler assembler_;
  std::optional<Thread> thread_;
};

}  // namespace replicant::replay
