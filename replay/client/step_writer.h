#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/rpc/client.h"
#include "base/thread.h"
#include "replay/client/step_sink.h"
#include "replay/format/chunk_format.h"
#include "replay/format/frame_codec.h"
#include "replay/format/protocol.h"

namespace replicant::replay {

// The chunks of a message are one part of it.
inline constexpr int64_t kMaxMessageBytes = rpc::SocketOptions().max_part_bytes;

struct StepWriterOptions {
  std::string endpoint;
  std::string name = "writer";
  rpc::CurveRole curve = {};
  StepShape shape;
  // Steps of a chunk: the unit of sending, and of eviction in the replay. The
  // writer sends a chunk once it is full or its episode ends.
  int64_t group_steps = 8;
  FrameCodec codec = FrameCodec::kLz4;
  // Maximum number of chunks waiting to be sent; then Append() waits.
  int64_t queue_groups = 64;
  // Maximum number of chunks in one message.
  int64_t message_chunks = 64;
  // Maximum number of bytes of the chunks in one message; a longer chunk goes
  // alone.
  int64_t message_bytes = kMaxMessageBytes;
  // Longest time that the service delays an answer while a rate limiter makes
  // the writer wait.
  std::chrono::milliseconds wait = std::chrono::milliseconds(400);
  // Names this run of the writer; 0 draws a random id.
  uint64_t writer_id = 0;
  // Maximum wait of a StepSink call, which has no deadline argument.
  Clock::Duration append_timeout = std::chrono::seconds(60);
};

enum class [[nodiscard]] AppendResult{
    kOk,
    // The rest of the episode is lost: the queue stayed full until the
    // deadline, or the service no longer knows the episode. All calls until the
    // next BeginEpisode() do nothing and return this.
    kEpisodeDropped,
    kClosed,
};

// Counts since the writer was made.
struct StepWriterMetrics {
  int64_t appended_steps = 0;
  int64_t acknowledged_chunks = 0;
  int64_t acknowledged_steps = 0;  // in the replay, according to its answers
  int64_t dropped_episodes = 0;    // lost from some step on
  int64_t dropped_steps = 0;       // appended steps that were lost
  int64_t resent_chunks = 0;
  double waited_s = 0.0;          // of the caller, for room in the queue
  int64_t queued_chunks = 0;      // now
  int64_t unanswered_chunks = 0;  // sent, now
  bool is_connected = false;
};

// Streams the steps of one environment to a replay service.
//
//   StepWriter writer({.endpoint = ..., .shape = ...});
//   writer.BeginEpisode();
//   while (...) writer.Append(step, deadline);
//   writer.EndEpisode(last_observation, last_frame, deadline);
//   writer.Flush(deadline);
//
// Append() compresses steps and puts full chunks into a bounded queue; the
// writer's thread sends them within the service's credits. While the service is
// away, or a rate limiter makes the writer wait, the queue fills. Append() then
// waits until its deadline at most, and drops the episode rather than stop the
// environment. After a reconnection the writer sends all unacknowledged chunks
// again; the service inserts each once.
//
// Thread-safety: any thread may call metrics() and StopWaiting(); one thread
// makes all other calls.
class StepWriter : public StepSink {
 public:
  // Connects in the background. Throws InvalidArgument for options outside
  // their range and for a chunk that no message has room for, CommError for an
  // endpoint that cannot be parsed. `clock` outlives the writer.
  explicit StepWriter(StepWriterOptions options, Clock* clock = &Clock::Real());
  // Drops unacknowledged steps.
  ~StepWriter() override;
  StepWriter(const StepWriter&) = delete;
  StepWriter& operator=(const StepWriter&) = delete;

  // Starts an episode; drops and counts an unfinished one.
  void BeginEpisode() override EXCLUDES(mutex_);
  // Drops the open episode, if there is one, and counts it.
  void AbandonEpisode() EXCLUDES(mutex_);
  // The next step of the episode. Throws InvalidArgument for a wrong length or
  // a number that a step cannot have, and goes on without that step; CommError
  // if the service refuses this writer.
  AppendResult Append(const Step& step, Clock::TimePoint deadline);
  // Ends the episode with o_T.
  AppendResult EndEpisode(std::span<const std::byte> observation,
                          std::span<const std::byte> frame,
                          Clock::TimePoint deadline);

  // StepSink: the same with append_timeout from now as the deadline. metrics()
  // counts a dropped episode.
  void Append(const Step& step) override;
  void EndEpisode(std::span<const std::byte> observation,
                  std::span<const std::byte> frame) override;

  // Waits until the queue has room for a chunk, or can never have it; false at
  // the deadline. The next call then does not wait. Lets a caller wait in
  // several parts without dropping the episode.
  [[nodiscard]] bool AwaitRoom(Clock::TimePoint deadline) EXCLUDES(mutex_);
  // Waits until all chunks are acknowledged; false at the deadline.
  [[nodiscard]] bool Flush(Clock::TimePoint deadline) EXCLUDES(mutex_);
  // From here on no call waits for room in the queue; an episode without room
  // is dropped. Lets a program end in time.
  void StopWaiting() EXCLUDES(mutex_);
  // Drops the queue, tells the service that this writer ends, and stops. Later
  // appends return kClosed.
  void Close() EXCLUDES(mutex_);

  StepWriterMetrics metrics() const EXCLUDES(mutex_);
  uint64_t writer_id() const { return options_.writer_id; }

 private:
  struct QueuedChunk {
    uint64_t episode = 0;
    int64_t num_steps = 0;
    uint64_t sequence = 0;  // once it was sent
    std::vector<std::byte> block;
  };

  // --- the caller's side ---
  void AddFrame(std::span<const std::byte> frame);
  // Returns kOk if the open episode can go on.
  AppendResult CheckOpen() EXCLUDES(mutex_);
  AppendResult QueueChunk(Clock::TimePoint deadline) EXCLUDES(mutex_);
  // Whether the open episode's next chunk can be queued, or is lost anyway.
  bool HasRoom() const REQUIRES(mutex_);
  // Forgets the chunk that is being filled.
  void DropChunk() REQUIRES(mutex_);
  // Removes an episode from the queue and counts it as lost.
  void DropEpisode(uint64_t episode) REQUIRES(mutex_);

  // --- the thread ---
  void Run(const Thread::StopToken& stop);
  // Checks that the service has the writer's StepShape; true once it answers.
  bool CheckService();
  // Sends queued chunks within the credits; true if it sent a message.
  bool SendChunks() EXCLUDES(mutex_);
  // Waits for an answer, a chunk that may be sent, or the end of a pause.
  void Await() EXCLUDES(mutex_);
  void SendRequest(const InsertRequest& request);
  // The sequence of the oldest chunk that is not acknowledged.
  uint64_t BaseSequence() const REQUIRES(mutex_);
  void HandleReply(rpc::CallReply reply) EXCLUDES(mutex_);
  void HandleAck(const InsertAck& ack) EXCLUDES(mutex_);
  void Pause() { resume_at_ = clock_->Now() + std::chrono::milliseconds(50); }
  void SayGoodbye();

  StepWriterOptions options_;
  Clock* const clock_;
  rpc::ZmqContext context_;
  rpc::Client client_;
  rpc::WakeEvent wake_;  // wakes the thread

  // the caller's: the episode that is open, and its chunk so far
  uint64_t episode_ = 0;
  bool is_open_ = false;
  int64_t next_step_ = 0;
  std::optional<ChunkBuilder> builder_;
  std::optional<FrameBlockEncoder> encoder_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<QueuedChunk> queue_ GUARDED_BY(mutex_);
  // sent and not acknowledged, by sequence
  std::deque<QueuedChunk> sent_ GUARDED_BY(mutex_);
  // number of them sent since the last rewind
  size_t num_under_way_ GUARDED_BY(mutex_) = 0;
  uint64_t dropped_episode_ GUARDED_BY(mutex_) = 0;
  bool is_closed_ GUARDED_BY(mutex_) = false;
  bool never_waits_ GUARDED_BY(mutex_) = false;
  // The thread sleeps and could send a new chunk.
  bool wants_chunk_ GUARDED_BY(mutex_) = false;
  std::exception_ptr failure_ GUARDED_BY(mutex_);
  StepWriterMetrics metrics_ GUARDED_BY(mutex_);

  // the thread's
  bool is_checked_ = false;
  uint64_t next_sequence_ = 1;
  uint64_t last_allowed_ = 0;  // last sequence that the credits allow
  int64_t num_requests_ = 0;   // under way
  // Send all of sent_ again once the requests under way are answered.
  bool must_rewind_ = false;
  Clock::TimePoint resume_at_;
  std::optional<Thread> thread_;  // last: it uses all of the above
};

}  // namespace replicant::replay
