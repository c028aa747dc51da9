#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/rpc/server.h"
#include "replay/checkpoint/checkpoint_saver.h"
#include "replay/format/batch_codec.h"
#include "replay/format/batch_target.h"
#include "replay/format/protocol.h"
#include "replay/service/batch_encoder.h"
#include "replay/service/reader_backlog.h"
#include "replay/service/reader_memories.h"
#include "replay/service/service_watch.h"
#include "replay/table/shard.h"

namespace replicant::replay {

struct ServiceOptions {
  // Maximum number of unacknowledged chunks of a writer, in [1,
  // kMaxChunksPerInsert].
  uint32_t credits = 64;
  // Time for a restored writer with an open episode to return.
  Clock::Duration return_timeout = std::chrono::seconds(10);
  // Maximum size of a message part that readers accept.
  size_t max_part_bytes = size_t{256} << 20;
  // Unread bytes above which a reader gets no further batch.
  int64_t max_unread_bytes = int64_t{128} << 20;
  // Whether to write batches into memory that readers share.
  bool shares_memory = true;
  // Threads that encode batches with pixels; 0: the loop encodes them.
  int64_t encode_threads = 2;
};

// Counts since the service was made, in addition to the counts of the shard and
// the server.
struct ServiceCounts {
  int64_t inserts = 0;           // messages
  int64_t duplicate_groups = 0;  // sent again by a writer
  int64_t out_of_order = 0;      // messages refused from some chunk on,
  int64_t refused_no_room = 0;   //   by reason
  int64_t refused_no_credits = 0;
  int64_t batches = 0;            // sent full
  int64_t partial_batches = 0;    // sent at their deadline
  int64_t memory_batches = 0;     // of both kinds, written to a reader's memory
  int64_t undelivered_items = 0;  // drawn for readers that have gone
  int64_t expired_writers = 0;    // closed because their peer was silent
  int64_t shared_memory_bytes = 0;  // memory of readers that is mapped now
};

// Answers the messages of replay/format/protocol.h from a shard. A request that
// cannot be answered yet waits, in the order of arrival, until the rate limiter
// admits it or its deadline passes.
//
//   Shard shard(config, &clock);
//   rpc::Server server(context, ReplayProtocol(), options);
//   Service service(&shard, {}, &clock);
//   service.AttachTo(server);
//
// A writer whose peer has been silent for the server's peer_timeout loses its
// open episode; it may return with its next episode.
//
// Thread-safety: only the thread of the server's loop.
class Service {
 public:
  // Throws InvalidArgument for settings outside their range. `shard` and
  // `clock` must outlive the service, and the service the server's loop.
  Service(Shard* shard, ServiceOptions options, Clock* clock);
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // Sets the handlers, the tick and the peer expiry of `server`.
  void AttachTo(rpc::Server& server);

  // Sets the saver of the checkpoints that clients request; with nullptr they
  // are refused. `saver` outlives the service or its replacement.
  void SetCheckpointSaver(CheckpointSaver* saver) { saver_ = saver; }

  // Closes the shard and answers all waiting requests.
  void Close();

  ServiceInfo Info() const;
  ServiceCounts counts() const;
  const ServiceRates& rates() const { return watch_.rates(); }
  // The answer to kStatus; docs/replay_protocol.md lists the fields.
  std::string StatusJson() const;

 private:
  struct Writer {
    uint64_t peer = 0;  // 0: restored, and silent since
    // Inserted chunks whose items, or items before them, wait for a limiter.
    uint32_t unadmitted = 0;
    bool is_waiting = false;
    // Dropped chunks that the writer may not know about, ascending.
    std::deque<uint64_t> dropped = {};
  };
  // An answer that is delayed until the writer has credits.
  struct PendingAck {
    uint64_t writer = 0;
    InsertAck ack;
    Clock::TimePoint deadline;
    rpc::Responder responder;
  };
  // A batch that is not full yet.
  struct PendingBatch {
    uint64_t peer = 0;
    std::string who;
    int64_t count = 0;
    Clock::TimePoint deadline;
    SampledBatch batch;
    std::optional<BatchTarget> target;
    KeptRange kept;
    rpc::Responder responder;
  };
  void HandleInsert(rpc::Request& request, rpc::Responder responder);
  void HandleSample(rpc::Request& request, rpc::Responder responder);
  void HandleFrames(rpc::Request& request, rpc::Responder responder);
  void HandleUpdate(rpc::Request& request, rpc::Responder responder);
  void HandleCloseWriter(rpc::Request& request, rpc::Responder responder);
  void HandleCheckpoint(rpc::Request& request, rpc::Responder responder);
  void HandleTick();
  void HandlePeerExpired(const rpc::Peer& peer);

  int64_t TableOf(std::string_view message, const std::string& name) const;
  InsertAck Take(const InsertRequest& request, Writer& writer);
  // Inserts one chunk; true if the next may follow.
  bool TakeChunk(uint64_t id, uint64_t sequence,
                 std::span<const std::byte> block, Writer& writer,
                 InsertAck* ack);
  // nullptr if the writer is new and there are too many already.
  Writer* FindOrAddWriter(uint64_t id);
  void CloseWriters(const std::vector<uint64_t>& ids);
  // Ends the open episodes of restored writers that have not returned.
  void ForgetAbsentWriters();
  uint32_t CreditsOf(const Writer& writer) const;
  void Answer(const PendingAck& pending);
  void Answer(int64_t table, PendingBatch& pending, BatchState state);
  void Answer(const rpc::Responder& responder, int64_t num_items,
              rpc::Message message, std::string_view error);
  // Counts a batch sent over the reader's connection as unread.
  std::shared_ptr<const ReaderBacklog::Share> BacklogOf(
      int64_t table, const PendingBatch& pending);
  BatchForm FormOf(int64_t table) const;

  // Serves waiting requests as far as rate limiters permit.
  void Pump();
  // Draws for waiting batches; true if anything was drawn.
  bool PumpBatches();
  void PumpWriters();
  void EndLate(Clock::TimePoint now);

  Shard* const shard_;
  const ServiceOptions options_;
  Clock* const clock_;
  // names the serials of this service: a restarted one may give them again
  const uint64_t frames_token_ = rpc::RandomId();
  rpc::Server* server_ = nullptr;
  CheckpointSaver* saver_ = nullptr;
  bool is_closed_ = false;
  std::map<uint64_t, Writer> writers_;
  // Deadline of the restored writers that are still absent, if there are any.
  std::optional<Clock::TimePoint> absent_until_;
  std::deque<uint64_t> waiting_writers_;  // by the start of their wait
  std::vector<PendingAck> pending_acks_;
  std::vector<std::deque<PendingBatch>> pending_batches_;  // by table
  ReaderBacklog backlog_;
  ReaderMemories memories_;
  std::unique_ptr<BatchEncoder> encoder_;  // null: the loop encodes
  ServiceCounts counts_;                   // all but shared_memory_bytes
  ServiceWatch watch_;
};

}  // namespace replicant::replay
