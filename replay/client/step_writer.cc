// The caller fills a chunk and queues it; the thread sends it and keeps it
// until it is acknowledged. Each chunk is thus in one of three places:
//
//   builder_ -> queue_ -> sent_ (with a sequence) -> acknowledged
//
// sent_ holds the unacknowledged chunks in the order of their sequences; the
// first num_under_way_ of them are in requests under way. Up to kMaxRequests
// requests may be, so that the service need not wait for the network. After any
// refusal or loss the thread rewinds: it waits for the other requests, sets
// num_under_way_ to 0 and sends sent_ again from its front. The service ignores
// sequences that it has, so a chunk is inserted once.
//
// The acknowledgement of chunk n grants credits for chunks after n. The thread
// never sends a sequence beyond last_allowed_; without credits it sends an
// empty request, which the service answers once it has some.
#include "replay/client/step_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace replicant::replay {
namespace {

// Maximum number of requests under way; more would only delay each answer.
constexpr int64_t kMaxRequests = 4;
constexpr auto kWriterIdleInterval = std::chrono::milliseconds(200);
// The service may be away for long; requests under way are then sent again.
constexpr rpc::CallOptions kCall = {.timeout = std::chrono::minutes(10),
                                    .is_idempotent = true};

void CheckRange(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return;
  throw InvalidArgument(fmt::format("StepWriter: {} {} is outside [{}, {}]",
                                    name, value, low, high));
}

StepWriterOptions Checked(StepWriterOptions options) {
  CheckRange("group_steps", options.group_steps, 1, kMaxChunkSteps);
  CheckRange("queue_groups", options.queue_groups, 1, 1 << 20);
  CheckRange("message_groups", options.message_chunks, 1, kMaxChunksPerInsert);
  CheckRange("wait", options.wait.count(), 0, kMaxWaitMs);
  CheckRange("observation_bytes", options.shape.observation_bytes, 0,
             kMaxRowBytes);
  CheckRange("action_bytes", options.shape.action_bytes, 0, kMaxRowBytes);
  CheckRange("frame_bytes", options.shape.frame_bytes, 0, kMaxFrameBytes);
  CheckRange("message_bytes", options.message_bytes, 1, kMaxMessageBytes);
  // of the rows and numbers of a step whose frame does not compress
  const int64_t step_bytes = options.shape.observation_bytes +
                             options.shape.frame_bytes +
                             options.shape.action_bytes + 16;
  // the last observation, and the headers
  const int64_t chunk_bytes = (options.group_steps + 1) * step_bytes + 64;
  if (chunk_bytes > kMaxMessageBytes) {
    throw InvalidArgument(
        fmt::format("StepWriter: a chunk of {} steps can have {} bytes, but a "
                    "message at most {}; hint: group_steps {}",
                    options.group_steps, chunk_bytes, kMaxMessageBytes,
                    (kMaxMessageBytes - 64) / step_bytes - 1));
  }
  if (options.writer_id == 0) options.writer_id = rpc::RandomId();
  return options;
}

}  // namespace

StepWriter::StepWriter(StepWriterOptions options, Clock* clock)
    : options_(Checked(std::move(options))),
      clock_(clock),
      client_(context_, ReplayProtocol(),
              {.socket = {.curve = options_.curve}, .name = options_.name}) {
  if (options_.shape.frame_bytes > 0) {
    // one more than the steps, for the last observation
    encoder_.emplace(options_.codec, options_.shape.frame_bytes,
                     options_.group_steps + 1);
  }
  client_.Connect(options_.endpoint);
  client_.DetachFromThread();
  thread_.emplace("replay-writer",
                  [this](const Thread::StopToken& stop) { Run(stop); });
}

StepWriter::~StepWriter() { Close(); }

// --- the caller's side ---

void StepWriter::AbandonEpisode() {
  MutexLock lock(mutex_);
  if (!std::exchange(is_open_, false)) return;
  DropChunk();
  DropEpisode(episode_);
}

void StepWriter::BeginEpisode() {
  AbandonEpisode();
  MutexLock lock(mutex_);
  ++episode_;
  is_open_ = true;
  next_step_ = 0;
}

void StepWriter::DropChunk() {
  if (!builder_) return;
  metrics_.dropped_steps += builder_->num_steps();
  builder_.reset();
  if (encoder_ && encoder_->num_frames() > 0) encoder_->Finish();
}

void StepWriter::AddFrame(std::span<const std::byte> frame) {
  if (static_cast<int64_t>(frame.size()) != options_.shape.frame_bytes) {
    throw InvalidArgument(
        fmt::format("StepWriter: a frame has {} bytes, expected {}",
                    frame.size(), options_.shape.frame_bytes));
  }
  if (encoder_) encoder_->Add(frame);
}

AppendResult StepWriter::CheckOpen() {
  MutexLock lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  if (is_closed_) return AppendResult::kClosed;
  if (is_open_ && dropped_episode_ == episode_) {
    DropChunk();
    is_open_ = false;
  }
  if (!is_open_) return AppendResult::kEpisodeDropped;
  return AppendResult::kOk;
}

AppendResult StepWriter::Append(const Step& step, Clock::TimePoint deadline) {
  REPLICANT_CHECK(episode_ > 0, "Append() before BeginEpisode()");
  if (const auto result = CheckOpen(); result != AppendResult::kOk) {
    return result;
  }
  // either all steps of a chunk have a priority or none does
  if (builder_ && builder_->num_steps() > 0 &&
      builder_->has_priorities() != step.priority.has_value()) {
    if (const auto result = QueueChunk(deadline); result != AppendResult::kOk) {
      return result;
    }
  }
  if (!builder_) builder_.emplace(options_.shape, episode_, next_step_);
  if (static_cast<int64_t>(step.frame.size()) != options_.shape.frame_bytes) {
    AddFrame(step.frame);  // throws, before the row is in
  }
  builder_->AddStep(step.observation, step.action, step.reward, step.discount,
                    step.priority);
  AddFrame(step.frame);
  ++next_step_;
  {
    MutexLock lock(mutex_);
    ++metrics_.appended_steps;
  }
  if (builder_->num_steps() < options_.group_steps) return AppendResult::kOk;
  return QueueChunk(deadline);
}

AppendResult StepWriter::EndEpisode(std::span<const std::byte> observation,
                                    std::span<const std::byte> frame,
                                    Clock::TimePoint deadline) {
  REPLICANT_CHECK(episode_ > 0, "EndEpisode() before BeginEpisode()");
  if (const auto result = CheckOpen(); result != AppendResult::kOk) {
    return result;
  }
  if (!builder_) builder_.emplace(options_.shape, episode_, next_step_);
  if (static_cast<int64_t>(frame.size()) != options_.shape.frame_bytes) {
    AddFrame(frame);
  }
  builder_->AddLastObservation(observation);
  AddFrame(frame);
  const AppendResult result = QueueChunk(deadline);
  is_open_ = false;
  return result;
}

void StepWriter::Append(const Step& step) {
  static_cast<void>(Append(step, clock_->Now() + options_.append_timeout));
}

void StepWriter::EndEpisode(std::span<const std::byte> observation,
                            std::span<const std::byte> frame) {
  static_cast<void>(
      EndEpisode(observation, frame, clock_->Now() + options_.append_timeout));
}

bool StepWriter::HasRoom() const {
  return static_cast<int64_t>(queue_.size()) < options_.queue_groups ||
         is_closed_ || failure_ || dropped_episode_ == episode_;
}

bool StepWriter::AwaitRoom(Clock::TimePoint deadline) {
  MutexLock lock(mutex_);
  const auto is_over = [this]() REQUIRES(mutex_) {
    return HasRoom() || never_waits_;
  };
  if (is_over()) return true;
  const Clock::TimePoint begin = clock_->Now();
  clock_->WaitUntil(mutex_, changed_, deadline, is_over);
  metrics_.waited_s += ToSeconds(clock_->Now() - begin);
  return is_over();
}

AppendResult StepWriter::QueueChunk(Clock::TimePoint deadline) {
  QueuedChunk chunk;
  chunk.episode = episode_;
  chunk.num_steps = builder_->num_steps();
  chunk.block = builder_->Finish(encoder_ ? encoder_->Finish()
                                          : std::vector<std::byte>());
  builder_.reset();

  MutexLock lock(mutex_);
  const Clock::TimePoint begin = clock_->Now();
  clock_->WaitUntil(mutex_, changed_, deadline, [&]() REQUIRES(mutex_) {
    return HasRoom() || never_waits_;
  });
  metrics_.waited_s += ToSeconds(clock_->Now() - begin);
  const bool is_in_time = HasRoom();
  if (failure_) std::rethrow_exception(failure_);
  if (is_closed_) return AppendResult::kClosed;
  if (!is_in_time || dropped_episode_ == episode_) {
    metrics_.dropped_steps += chunk.num_steps;
    DropEpisode(episode_);
    is_open_ = false;
    return AppendResult::kEpisodeDropped;
  }
  queue_.push_back(std::move(chunk));
  // only once: more chunks may gather until the thread is awake
  if (std::exchange(wants_chunk_, false)) wake_.Wake();
  return AppendResult::kOk;
}

void StepWriter::DropEpisode(uint64_t episode) {
  std::erase_if(queue_, [&](const QueuedChunk& chunk) REQUIRES(mutex_) {
    if (chunk.episode != episode) return false;
    metrics_.dropped_steps += chunk.num_steps;
    return true;
  });
  if (episode > dropped_episode_) {
    dropped_episode_ = episode;
    ++metrics_.dropped_episodes;
  }
  changed_.NotifyAll();
}

bool StepWriter::Flush(Clock::TimePoint deadline) {
  MutexLock lock(mutex_);
  const bool is_done =
      clock_->WaitUntil(mutex_, changed_, deadline, [this]() REQUIRES(mutex_) {
        return (queue_.empty() && sent_.empty()) || is_closed_ || failure_;
      });
  if (failure_) std::rethrow_exception(failure_);
  return is_done && queue_.empty() && sent_.empty();
}

void StepWriter::StopWaiting() {
  MutexLock lock(mutex_);
  never_waits_ = true;
  changed_.NotifyAll();
}

void StepWriter::Close() {
  {
    MutexLock lock(mutex_);
    is_closed_ = true;
    changed_.NotifyAll();
  }
  thread_->RequestStop();
  wake_.Wake();
  thread_->Join();
}

StepWriterMetrics StepWriter::metrics() const {
  MutexLock lock(mutex_);
  StepWriterMetrics metrics = metrics_;
  metrics.queued_chunks = static_cast<int64_t>(queue_.size());
  metrics.unanswered_chunks = static_cast<int64_t>(sent_.size());
  return metrics;
}

// --- the thread ---

void StepWriter::Run(const Thread::StopToken& stop) {
  try {
    while (!stop.IsStopRequested()) {
      if (!is_checked_ && !CheckService()) continue;
      client_.Process(Clock::Duration(0));
      while (const auto id = client_.WaitAny(Clock::Duration(0))) {
        --num_requests_;
        HandleReply(client_.Wait(*id));
      }
      if (!SendChunks()) Await();
    }
    SayGoodbye();
  } catch (const std::exception&) {
    MutexLock lock(mutex_);
    failure_ = std::current_exception();
    changed_.NotifyAll();
  }
}

bool StepWriter::CheckService() {
  rpc::CallOptions options = kCall;
  options.timeout = kWriterIdleInterval;
  const rpc::CallReply reply = client_.Call(kDescribeKind, {}, options);
  const bool is_answered = reply.result == rpc::CallResult::kOk;
  {
    MutexLock lock(mutex_);
    metrics_.is_connected = is_answered;
  }
  if (!is_answered) return false;
  const ServiceInfo info = rpc::DecodeMessage<ServiceInfo>(reply.payload);
  if (!(info.shape == options_.shape)) {
    const auto text = [](const StepShape& shape) {
      return fmt::format("{} + {} + {}", shape.observation_bytes,
                         shape.frame_bytes, shape.action_bytes);
    };
    throw CommError(fmt::format(
        "{}: the replay's steps have {} bytes (observation + frame + action), "
        "but writer '{}' has {}; hint: give both the same task",
        options_.endpoint, text(info.shape), options_.name,
        text(options_.shape)));
  }
  last_allowed_ = info.credits;
  is_checked_ = true;
  return true;
}

void StepWriter::Await() {
  const Clock::TimePoint now = clock_->Now();
  const bool is_paused = resume_at_ > now;
  {
    MutexLock lock(mutex_);
    metrics_.is_connected = client_.IsResponsive();
    wants_chunk_ = !is_paused && num_requests_ < kMaxRequests &&
                   !must_rewind_ &&
                   (next_sequence_ <= last_allowed_ || num_requests_ == 0);
    if (wants_chunk_ && !queue_.empty()) return;
  }
  rpc::Client* const client = &client_;
  rpc::Client::AwaitAny(
      {&client, 1}, wake_,
      is_paused ? resume_at_ - now : Clock::Duration(kWriterIdleInterval));
  MutexLock lock(mutex_);
  wants_chunk_ = false;
}

uint64_t StepWriter::BaseSequence() const {
  return sent_.empty() ? next_sequence_ : sent_.front().sequence;
}

bool StepWriter::SendChunks() {
  if (num_requests_ >= kMaxRequests || clock_->Now() < resume_at_) return false;
  InsertRequest request;
  {
    MutexLock lock(mutex_);
    if (must_rewind_) {
      if (num_requests_ > 0) return false;
      metrics_.resent_chunks += static_cast<int64_t>(num_under_way_);
      num_under_way_ = 0;
      must_rewind_ = false;
    }
    const auto limit = static_cast<size_t>(options_.message_chunks);
    request.writer = options_.writer_id;
    request.base_sequence = BaseSequence();
    request.base_steps = static_cast<uint64_t>(
        std::max<int64_t>(0, metrics_.acknowledged_steps));
    request.first_sequence = num_under_way_ < sent_.size()
                                 ? sent_[num_under_way_].sequence
                                 : next_sequence_;
    request.wait_ms = static_cast<uint32_t>(options_.wait.count());
    // chunks to send again, then new ones. The blocks in sent_ keep their
    // addresses until this thread drops them
    int64_t num_bytes = 0;
    while (request.blocks.size() < limit) {
      if (num_under_way_ == sent_.size()) {
        if (queue_.empty() || next_sequence_ > last_allowed_) break;
        sent_.push_back(std::move(queue_.front()));
        queue_.pop_front();
        sent_.back().sequence = next_sequence_++;
      }
      if (sent_[num_under_way_].sequence > last_allowed_) break;
      const std::vector<std::byte>& block = sent_[num_under_way_].block;
      num_bytes += static_cast<int64_t>(block.size());
      if (!request.blocks.empty() && num_bytes > options_.message_bytes) break;
      request.blocks.push_back(block);
      ++num_under_way_;
    }
    const bool has_more = num_under_way_ < sent_.size() || !queue_.empty();
    if (request.blocks.empty() && (num_requests_ > 0 || !has_more)) {
      return false;
    }
    changed_.NotifyAll();
  }
  // without a chunk it asks for credits
  SendRequest(request);
  return true;
}

void StepWriter::SendRequest(const InsertRequest& request) {
  const auto id = client_.Start(kInsertKind, request.Encode(), kCall);
  REPLICANT_CHECK(id.has_value(), "{} requests under way", num_requests_);
  ++num_requests_;
}

void StepWriter::HandleReply(rpc::CallReply reply) {
  switch (reply.result) {
    case rpc::CallResult::kOk:
      HandleAck(rpc::DecodeMessage<InsertAck>(reply.payload));
      return;
    case rpc::CallResult::kError:
      if (reply.error == rpc::ErrorCode::kMalformed ||
          reply.error == rpc::ErrorCode::kInvalidArgument) {
        throw CommError(
            fmt::format("{}: {}", options_.endpoint, reply.error_text));
      }
      Pause();
      break;
    case rpc::CallResult::kTimeout:
    case rpc::CallResult::kLost:
    case rpc::CallResult::kClosed:
      Pause();
      break;
  }
  must_rewind_ = true;
}

void StepWriter::HandleAck(const InsertAck& ack) {
  MutexLock lock(mutex_);
  for (const uint64_t sequence : ack.dropped) {
    for (const QueuedChunk& chunk : sent_) {
      if (chunk.sequence != sequence) continue;
      metrics_.dropped_steps += chunk.num_steps;
      metrics_.acknowledged_steps -= chunk.num_steps;
      DropEpisode(chunk.episode);
    }
  }
  while (!sent_.empty() && sent_.front().sequence <= ack.last_sequence) {
    ++metrics_.acknowledged_chunks;
    metrics_.acknowledged_steps += sent_.front().num_steps;
    sent_.pop_front();
    if (num_under_way_ > 0) --num_under_way_;
  }
  // count from the writer's own position: a restarted service may know a
  // smaller one
  last_allowed_ = BaseSequence() - 1 + ack.credits;
  changed_.NotifyAll();
  switch (ack.state) {
    case InsertState::kTaken:
    case InsertState::kWaiting:
      return;
    case InsertState::kNoRoom:
    case InsertState::kClosed:
      Pause();
      break;
    case InsertState::kNoCredits:
    case InsertState::kOutOfOrder:
      break;
  }
  must_rewind_ = true;
}

void StepWriter::SayGoodbye() {
  if (client_.session_id() == 0) return;
  rpc::CallOptions options = kCall;
  options.timeout = std::chrono::milliseconds(500);
  // if this message is lost, the service closes the writer after a timeout
  static_cast<void>(client_.Call(
      kCloseWriterKind,
      rpc::EncodeMessage(CloseWriterRequest{options_.writer_id}), options));
}

}  // namespace replicant::replay
