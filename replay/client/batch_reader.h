#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/rng.h"
#include "base/rpc/client.h"
#include "base/tensor/host_buffer.h"
#include "base/thread.h"
#include "replay/client/batch.h"
#include "replay/client/batch_assembler.h"
#include "replay/client/batch_source.h"
#include "replay/client/importance_weights.h"
#include "replay/client/kept_frames.h"
#include "replay/client/table_state.h"
#include "replay/format/batch_target.h"
#include "replay/format/protocol.h"

namespace replicant::replay {

struct BatchReaderOptions {
  // One per service; every batch draws from all of them.
  std::vector<std::string> endpoints;
  std::string name = "reader";
  rpc::CurveRole curve = {};
  StepShape shape;
  std::string table = "default";
  // Expected length of the table's windows; 0: n-step transitions;
  // std::nullopt: accepts either.
  std::optional<int64_t> window = 0;
  int64_t batch_size = 256;
  // Number of batches requested, on their way, or ready.
  int64_t prefetch = 2;
  // 0 leaves frames compressed, for Batch::FramesOf().
  int64_t decode_threads = 1;
  // Whether decode threads copy every frame into the buffers of the batch. If
  // not they decode the compressed ones, and the others stay where they lie,
  // for Batch::FramesOf().
  bool fills_frames = true;
  ImportanceSchedule importance = {};  // exponents in [0, 1]
  // Time after which a service answers with the items drawn so far; the reader
  // requests the rest again.
  std::chrono::milliseconds wait = std::chrono::milliseconds(400);
  // Whether services of this host write batches into memory that the reader
  // shares. Otherwise, and from other hosts, batches arrive as messages.
  bool shares_memory = true;
  // Frames that the reader keeps of each service, so that none travels twice;
  // the bytes are divided among the services.
  KeptFrames::Options kept_frames = {};
  uint64_t seed = 0;  // of the choice among services
  // Deadline of a checkpoint that BatchSource's caller starts. Services may
  // have to write gigabytes of steps.
  std::chrono::minutes checkpoint_timeout = std::chrono::minutes(30);
};

// Counts since the reader was made.
struct BatchReaderMetrics {
  int64_t batches = 0;          // made ready
  int64_t received_bytes = 0;   // payload, without shared memory
  int64_t memory_replies = 0;   // through shared memory
  int64_t partial_replies = 0;  // with fewer items than requested
  int64_t lost_requests = 0;    // without an answer, and repeated
  // of KeptFrames: bytes now, frames that came and that left again; frames of
  // drawn items, and those of them that were kept
  int64_t kept_frames_bytes = 0;
  int64_t fetched_frames = 0;
  int64_t evicted_frames = 0;
  int64_t drawn_frames = 0;
  int64_t drawn_kept_frames = 0;
  int64_t sent_updates = 0;
  // because a service was away or slow, or restarted after the draw
  int64_t dropped_updates = 0;
  int64_t ready_batches = 0;  // now
};

// Draws batches from one or more replay services, ahead of time.
//
// The reader's thread keeps `prefetch` batches under way. Decode threads decode
// and stack the frames; with decode_threads 0 the user of the batch does so,
// and without fills_frames the user stacks them. Each draw of a batch goes to
// service s with probability M_s / sum M, where M_s is the last reported mass
// of the service's table (replay/table/selector.h). Item i has probability
//
//   (M_s / sum M) P_i
//
// where P_i is its probability within the service. While all masses are zero,
// the sizes of the tables take their place. While every service answers in
// full, this is exact even if masses have changed meanwhile, because both
// factors are the ones used for the draw. Rows that a service does not give
// within its wait are divided again among all: its items are drawn less often
// than that, and the weights do not correct for it.
//
// With several services the reader asks each for its table's size and mass five
// times a second, so that services with few draws also keep their share. Draws
// start once all tables together hold the sum of their min_size_to_sample, or
// once a table makes its writers wait. A table below its min_size_to_sample has
// no share until it reaches it.
//
// With kept_frames each frame block travels once, by a stream of requests
// beside those of batches (KeptFrames); batches bring the frames that are
// missing. The batches are the same, to the bit.
//
// Services of this host write into the memory of a batch (BatchAssembler). If a
// reply is lost, the batch starts again in other memory, because the service
// may still write to the old one.
//
// Thread-safety: Next(), UpdatePriorities(), metrics() and Close() may be
// called from any thread.
class BatchReader : public BatchSource {
 public:
  // Connects in the background. Throws InvalidArgument for options outside
  // their range, CommError for an endpoint that cannot be parsed.
  explicit BatchReader(BatchReaderOptions options);
  ~BatchReader() override;
  BatchReader(const BatchReader&) = delete;
  BatchReader& operator=(const BatchReader&) = delete;

  // Swaps the next batch with `batch` and reuses its memory. Throws CommError
  // if a service refuses this reader or its batches are malformed.
  ReadResult Next(Clock::TimePoint deadline, Batch* batch) override
      EXCLUDES(mutex_);

  // True: the reader always draws `prefetch` batches ahead.
  bool CanReadAhead() const override { return true; }

  // Sends a new priority for each item of `batch`, without waiting. Throws
  // InvalidArgument if a priority is negative or not finite, if their number
  // differs from the items', or if another reader drew the batch. Drops and
  // counts priorities of items that a service drew before a restart: it may
  // have reused their keys.
  void UpdatePriorities(const Batch& batch,
                        std::span<const float> priorities) override
      EXCLUDES(mutex_);

  // A paused reader requests no batch, so that a checkpoint counts no unseen
  // item as sampled.
  void SetPaused(bool is_paused) override EXCLUDES(mutex_);
  // Batches already under way arrive even beyond the limit.
  void SetLimit(int64_t num_batches) override EXCLUDES(mutex_);
  void SetLostSteps(int64_t num_steps) override EXCLUDES(mutex_);
  // Asks every service to write checkpoint `id`, each into its own folder. The
  // reader requests no batch until these requests are sent. Throws
  // InvalidArgument if `id` is 0.
  void StartCheckpoint(uint64_t id, Clock::TimePoint deadline) EXCLUDES(mutex_);
  // As above, with checkpoint_timeout from now as the deadline.
  void StartCheckpoint(uint64_t id,
                       const std::filesystem::path& folder) override
      EXCLUDES(mutex_);
  // kSaved once the checkpoint is on disk in every service; kNotKept if a
  // service has no checkpoint folder. Throws CommError with the reason if a
  // service cannot write the checkpoint, restarted meanwhile, or is late.
  CheckpointState PollCheckpoint() override EXCLUDES(mutex_);
  // Starts a checkpoint and waits for it; one call at a time. Returns and
  // throws as PollCheckpoint() does.
  CheckpointState Checkpoint(uint64_t id, Clock::TimePoint deadline)
      EXCLUDES(mutex_);

  // Ends all waits with kClosed; sends pending priorities first.
  void Close() EXCLUDES(mutex_);

  BatchReaderMetrics metrics() const EXCLUDES(mutex_);
  // Of kept frames: "frame_store_bytes" now, "frame_store_hit_share" of the
  // frames of the newest reply, "frame_store_fetched_frames" and
  // "frame_store_evicted_frames" so far. Empty if none are kept.
  std::vector<std::pair<std::string, double>> Scalars() const override
      EXCLUDES(mutex_);

 private:
  // Rows of a batch, requested from one service.
  struct SampleInFlight {
    std::shared_ptr<BatchAssembly> assembly;
    int64_t first_row = 0;
    int64_t count = 0;
    double share = 0.0;  // M_s / sum M of the draw
    std::optional<BatchTarget> target;
    KeptRange kept;  // of the request
  };
  struct Shard {
    std::string endpoint;
    std::unique_ptr<rpc::Client> client;
    bool is_checked = false;
    bool takes_memory = true;     // assumed until a reply shows otherwise
    Clock::TimePoint next_check;  // while it is not checked
    Clock::TimePoint down_until;  // its last request was lost
    double mass = 1.0;
    // With several services: the last reported state of the table.
    std::optional<TableState> table;
    Clock::TimePoint next_status;
    std::optional<rpc::Client::RequestId> status_request;
    // of all services behind this endpoint so far
    int64_t total_steps = 0;
    // steps that earlier services had counted and this one lacks
    int64_t lost_steps = 0;
    bool is_restarted = false;  // no answer since
    int64_t num_restarts = 0;
    std::map<rpc::Client::RequestId, SampleInFlight> in_flight;
    std::optional<rpc::Client::RequestId> checkpoint_request;
    std::optional<KeptFrames> kept;
    Clock::TimePoint next_frames;
    std::optional<rpc::Client::RequestId> frames_request;
  };
  // The checkpoint last started by StartCheckpoint().
  struct CheckpointCall {
    uint64_t id = 0;
    Clock::TimePoint deadline;
    bool is_sent = true;
    size_t num_missing = 0;  // services that have not answered
    bool is_not_kept = false;
    std::string problem;
  };
  // Rows that wait because no service is up.
  struct Postponed {
    std::shared_ptr<BatchAssembly> assembly;
    int64_t first_row = 0;
    int64_t count = 0;
  };
  struct Update {
    int32_t shard;
    int64_t num_restarts;  // before the draws
    std::vector<PriorityUpdate> updates;
  };

  // Whether Next() has no batch to return and none is under way.
  bool IsDrained() const REQUIRES(mutex_) {
    return num_under_way_ == 0 && (is_paused_ || num_wanted_ <= 0);
  }

  // --- the network's thread ---
  void Run(const Thread::StopToken& stop);
  // Makes one pass of the loop, without its wait; returns the longest wait.
  Clock::Duration RunOnce();
  bool CheckService(Shard& shard, bool is_needed);
  // Throws CommError unless the table has the form that the reader expects.
  void CheckForm(const std::string& endpoint, const BatchForm& form);
  void AskForBatches() EXCLUDES(mutex_);
  std::shared_ptr<BatchAssembly> NewAssembly() EXCLUDES(mutex_);
  // Divides the batch's rows among the services by mass, and requests them.
  void Request(const std::shared_ptr<BatchAssembly>& assembly,
               int64_t first_row, int64_t count);
  void AskForPostponed();
  // Asks the services for the states of their tables, if there are several.
  void AskForStatus();
  void HandleStatus(Shard& shard, const rpc::CallReply& reply);
  // Asks the services for the frames that they got since.
  void AskForFrames();
  void HandleFrames(Shard& shard, const rpc::CallReply& reply) EXCLUDES(mutex_);
  // Frees the frames that no request under way may name.
  static void ForgetFrames(Shard& shard);
  // Whether the tables together may be drawn from.
  bool HaveEnough() const;
  std::vector<double> Shares() const;
  void Receive(Shard& shard, int32_t index) EXCLUDES(mutex_);
  void HandleReply(Shard& shard, int32_t index, SampleInFlight in_flight,
                   rpc::CallReply reply) EXCLUDES(mutex_);
  // Adds the reply to its assembly; returns the number of items.
  int64_t TakeReply(Shard& shard, int32_t index,
                    const SampleInFlight& in_flight, rpc::Message payload)
      EXCLUDES(mutex_);
  void HandleLoss(Shard& shard, const SampleInFlight& in_flight)
      EXCLUDES(mutex_);
  void HandOver(std::shared_ptr<BatchAssembly> assembly) EXCLUDES(mutex_);
  void SendUpdates() EXCLUDES(mutex_);
  void SendCheckpoint(uint64_t id, Clock::TimePoint deadline);
  void HandleCheckpointReply(Shard& shard, const rpc::CallReply& reply)
      EXCLUDES(mutex_);

  // --- the network's or a decode thread ---
  void PushReady(Batch batch) EXCLUDES(mutex_);
  void Fail() EXCLUDES(mutex_);

  const BatchReaderOptions options_;
  const uint64_t id_ = rpc::RandomId();
  rpc::ZmqContext context_;
  std::vector<Shard> shards_;          // the network thread's
  std::vector<rpc::Client*> clients_;  // of shards_, for waiting
  // the network thread's
  RandomStream random_;
  // until then the first draws wait for every service's mass
  const Clock::TimePoint first_draws_at_;
  std::vector<Postponed> postponed_;
  // form of the table, once a service has sent it; equal in all services
  std::optional<BatchForm> form_;
  // wakes the network thread: room for a batch, priorities, the end
  rpc::WakeEvent wake_;

  mutable Mutex mutex_;
  CondVar ready_changed_;  // or is_closed_, failure_, checkpoint_
  std::deque<Batch> ready_ GUARDED_BY(mutex_);
  std::vector<Batch> spare_ GUARDED_BY(mutex_);
  std::deque<Update> updates_ GUARDED_BY(mutex_);
  // requested and not yet returned by Next()
  int64_t num_under_way_ GUARDED_BY(mutex_) = 0;
  bool is_closed_ GUARDED_BY(mutex_) = false;
  bool is_paused_ GUARDED_BY(mutex_) = false;
  // batches that Next() may still return
  int64_t num_wanted_ GUARDED_BY(mutex_) = std::numeric_limits<int64_t>::max();
  int64_t lost_steps_before_ GUARDED_BY(mutex_) = 0;
  CheckpointCall checkpoint_ GUARDED_BY(mutex_);
  std::exception_ptr failure_ GUARDED_BY(mutex_);
  BatchReaderMetrics metrics_ GUARDED_BY(mutex_);
  double hit_share_ GUARDED_BY(mutex_) = 0.0;  // of the newest reply

  // last: their threads use all of the above
  BatchAssembler assembler_;
  std::optional<Thread> thread_;
};

}  // namespace replicant::replay
