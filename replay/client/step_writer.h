#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/base/thread.h"
#include "core/rpc/client.h"
#include "replay/format/frame_codec.h"
#include "replay/format/protocol.h"
#include "replay/format/step_group.h"

namespace replicant::replay {

struct StepWriterOptions {
  std::string endpoint;
  std::string name = "writer";
  rpc::CurveRole curve = {};
  StepShape shape;
  // Steps of a group: the unit of sending, and of eviction in the replay. A
  // step is held back until its group is full or its episode ends.
  int64_t group_steps = 8;
  FrameCodec codec = FrameCodec::kLz4;
  // Groups that wait for the service before Append() waits.
  int64_t queue_groups = 64;
  // Groups of one message at most.
  int64_t message_groups = 64;
  // Answers come within this time while a rate limiter holds the writer up.
  std::chrono::milliseconds wait = std::chrono::milliseconds(400);
  // Names this run of the writer; 0 draws a random one.
  uint64_t writer_id = 0;
};

enum class [[nodiscard]] AppendResult{
    kOk,
    // The episode is lost from here on: the queue stayed full until the
    // deadline, or the service does not know the episode any more. Calls until
    // the next BeginEpisode() do nothing but return this.
    kEpisodeDropped,
    kClosed,
};

// Counts since the writer was made.
struct StepWriterMetrics {
  int64_t appended_steps = 0;
  int64_t acknowledged_groups = 0;
  int64_t acknowledged_steps = 0;  // in the replay, as an answer said
  int64_t dropped_episodes = 0;    // lost from some step on,
  int64_t dropped_steps = 0;       //   with so many steps that were appended
  int64_t resent_groups = 0;
  double waited_s = 0.0;          // in calls, for room in the queue
  int64_t queued_groups = 0;      // now
  int64_t unanswered_groups = 0;  // sent, now
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
// Append() compresses and puts into a bounded queue; a thread of its own sends,
// within the credits that the service gives. While the service is away or a
// rate limiter holds it up the queue fills, and then Append() waits, never
// longer than its deadline: the episode is given up rather than the environment
// held. What was sent and not acknowledged is sent again after a reconnection,
// and taken in once.
//
// Thread-safety: metrics() and StopWaiting() may be called from any thread, the
// rest by one.
class StepWriter {
 public:
  // Connects in the background. Throws InvalidArgument for options outside
  // their range, CommError for an endpoint that cannot be parsed. `clock`
  // outlives the writer.
  explicit StepWriter(StepWriterOptions options, Clock* clock = &Clock::Real());
  // Drops what is not acknowledged.
  ~StepWriter();
  StepWriter(const StepWriter&) = delete;
  StepWriter& operator=(const StepWriter&) = delete;

  struct Step {
    std::span<const std::byte> observation;  // o_t, observation_bytes
    std::span<const std::byte> frame;        // of o_t, frame_bytes
    std::span<const std::byte> action;       // a_t, action_bytes
    float reward = 0.0f;                     // r_{t+1}
    float discount = 1.0f;                   // d_{t+1}
    std::optional<float> priority;           // of the item that begins at t
  };

  // Starts an episode; one that was not ended is dropped and counted.
  void BeginEpisode();
  // The next step of the episode. Throws InvalidArgument for a wrong length,
  // and CommError if the service refuses this writer.
  AppendResult Append(const Step& step, Clock::TimePoint deadline);
  // o_T ends the episode.
  AppendResult EndEpisode(std::span<const std::byte> observation,
                          std::span<const std::byte> frame,
                          Clock::TimePoint deadline);

  // Waits until all groups are acknowledged; false at the deadline.
  [[nodiscard]] bool Flush(Clock::TimePoint deadline) EXCLUDES(mutex_);
  // From any thread: no call waits any longer for room in the queue, now or
  // later; an episode for which there is none is dropped. For an end in time.
  void StopWaiting() EXCLUDES(mutex_);
  // Tells the service that this writer ends, and stops. What is queued is
  // dropped. Later appends return kClosed.
  void Close() EXCLUDES(mutex_);

  StepWriterMetrics metrics() const EXCLUDES(mutex_);
  uint64_t writer_id() const { return options_.writer_id; }

 private:
  struct QueuedGroup {
    uint64_t episode = 0;
    int64_t num_steps = 0;
    uint64_t sequence = 0;  // once it was sent
    std::vector<std::byte> block;
  };

  // --- the caller's side ---
  void AddFrame(std::span<const std::byte> frame);
  // kOk if the episode can go on.
  AppendResult CheckOpen() EXCLUDES(mutex_);
  AppendResult QueueGroup(Clock::TimePoint deadline) EXCLUDES(mutex_);
  // Forgets the group that is being filled.
  void DropGroup() REQUIRES(mutex_);
  // Takes an episode out of the queue and counts it as lost.
  void DropEpisode(uint64_t episode) REQUIRES(mutex_);

  // --- the thread ---
  void Run(const Thread::StopToken& stop);
  // Compares the service's steps with ours; whether it has answered.
  bool CheckService();
  // Sends what may be sent; whether something was.
  bool SendGroups() EXCLUDES(mutex_);
  // Until an answer, a group that may be sent, or the end of a pause.
  void Await() EXCLUDES(mutex_);
  void SendRequest(const InsertRequest& request);
  // The sequence of the oldest group that is not acknowledged.
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

  // the caller's: the episode that is open, and its group so far
  uint64_t episode_ = 0;
  bool is_open_ = false;
  int64_t next_step_ = 0;
  std::optional<StepGroupBuilder> builder_;
  std::optional<FrameGroupEncoder> encoder_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<QueuedGroup> queue_ GUARDED_BY(mutex_);
  // sent and not acknowledged, by sequence
  std::deque<QueuedGroup> sent_ GUARDED_BY(mutex_);
  // of these, how many were sent since the last rewind
  size_t num_under_way_ GUARDED_BY(mutex_) = 0;
  uint64_t dropped_episode_ GUARDED_BY(mutex_) = 0;
  bool is_closed_ GUARDED_BY(mutex_) = false;
  bool never_waits_ GUARDED_BY(mutex_) = false;
  // The thread sleeps, and could send a group that came.
  bool wants_group_ GUARDED_BY(mutex_) = false;
  std::exception_ptr failure_ GUARDED_BY(mutex_);
  StepWriterMetrics metrics_ GUARDED_BY(mutex_);

  // the thread's
  bool is_checked_ = false;
  uint64_t next_sequence_ = 1;
  uint64_t last_allowed_ = 0;  // by the credits: sequences up to this one
  int64_t num_requests_ = 0;   // under way
  // All of sent_ goes again, once the requests under way are answered.
  bool must_rewind_ = false;
  Clock::TimePoint resume_at_;
  std::optional<Thread> thread_;  // last: it uses all of the above
};

}  // namespace replicant::replay
