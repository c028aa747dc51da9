#include "replay/batch_reader.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/base/error.h"
#include "replay/selector.h"

namespace replicant::replay {
namespace {

// How long the thread waits for an answer before it looks at the priorities to
// be sent and the room for batches.
constexpr auto kLookInterval = std::chrono::milliseconds(1);
// Between attempts to reach a service that was not there when the reader began,
// and one that was lost.
constexpr auto kCheckInterval = std::chrono::seconds(1);
constexpr auto kRetryInterval = std::chrono::milliseconds(100);
constexpr auto kIdleInterval = std::chrono::milliseconds(200);
// What a service is given beyond the wait that it was asked for.
constexpr auto kGrace = std::chrono::seconds(5);

BatchReaderOptions Checked(BatchReaderOptions options) {
  const auto check = [](const char* name, int64_t value, int64_t low,
                        int64_t high) {
    if (value >= low && value <= high) return;
    throw InvalidArgument(fmt::format("BatchReader: {} {} is outside [{}, {}]",
                                      name, value, low, high));
  };
  check("number of endpoints", static_cast<int64_t>(options.endpoints.size()),
        1, 1024);
  check("batch_size", options.batch_size, 1, kMaxItemsPerBatch);
  check("prefetch", options.prefetch, 1, 1024);
  check("decode_threads", options.decode_threads, 1, 256);
  check("wait", options.wait.count(), 1, kMaxWaitMs);
  if (!(options.importance_exponent >= 0.0 &&
        options.importance_exponent <= 1.0)) {
    throw InvalidArgument(
        fmt::format("BatchReader: importance_exponent {} is outside [0, 1]",
                    options.importance_exponent));
  }
  return options;
}

// Makes `buffer` hold `size` bytes; keeps its memory where it does already.
void Resize(HostBuffer& buffer, int64_t size) {
  if (buffer.size_bytes() == static_cast<size_t>(size)) return;
  buffer =
      HostBuffer(static_cast<size_t>(size), HostBuffer::Fill::kUninitialised);
}

std::span<std::byte> RowOf(HostBuffer& buffer, int64_t row, int64_t bytes) {
  return buffer.bytes().subspan(static_cast<size_t>(row * bytes),
                                static_cast<size_t>(bytes));
}

void CopyRow(HostBuffer& to, int64_t row, std::span<const std::byte> from) {
  if (from.empty()) return;
  std::memcpy(RowOf(to, row, static_cast<int64_t>(from.size())).data(),
              from.data(), from.size());
}

void Prepare(Batch& batch, int64_t size, int64_t stack,
             const StepShape& shape) {
  batch.size = size;
  batch.stack = stack;
  Resize(batch.observations, size * shape.observation_bytes);
  Resize(batch.next_observations, size * shape.observation_bytes);
  Resize(batch.actions, size * shape.action_bytes);
  Resize(batch.frames, size * stack * shape.frame_bytes);
  Resize(batch.next_frames, size * stack * shape.frame_bytes);
  const auto count = static_cast<size_t>(size);
  batch.rewards.resize(count);
  batch.discounts.resize(count);
  batch.priorities.resize(count);
  batch.weights.resize(count);
  batch.probabilities.resize(count);
  batch.times_sampled.resize(count);
  batch.keys.resize(count);
  batch.shards.resize(count);
}

}  // namespace

BatchReader::BatchReader(BatchReaderOptions options)
    : options_(Checked(std::move(options))),
      random_(options_.seed, "replay-reader") {
  rpc::ClientOptions client;
  client.name = options_.name;
  client.socket.curve = options_.curve;
  for (const std::string& endpoint : options_.endpoints) {
    Shard shard;
    shard.endpoint = endpoint;
    shard.client =
        std::make_unique<rpc::Client>(context_, ReplayProtocol(), client);
    shard.client->Connect(endpoint);
    shard.client->DetachFromThread();
    shards_.push_back(std::move(shard));
  }
  for (int64_t i = 0; i < options_.decode_threads; ++i) {
    threads_.push_back(std::make_unique<Thread>(
        "replay-decode", [this](const Thread::StopToken& s) { Decode(s); }));
  }
  threads_.push_back(std::make_unique<Thread>(
      "replay-reader", [this](const Thread::StopToken& s) { Run(s); }));
}

BatchReader::~BatchReader() { Close(); }

ReadResult BatchReader::Next(Clock::TimePoint deadline, Batch* batch) {
  MutexLock lock(mutex_);
  Clock::Real().WaitUntil(mutex_, changed_, deadline,
                          [this]() REQUIRES(mutex_) {
                            return !ready_.empty() || is_closed_ || failure_ ||
                                   (is_paused_ && num_under_way_ == 0);
                          });
  if (failure_) std::rethrow_exception(failure_);
  if (is_closed_) return ReadResult::kClosed;
  if (ready_.empty()) {
    return is_paused_ && num_under_way_ == 0 ? ReadResult::kPaused
                                             : ReadResult::kTimeout;
  }
  std::swap(*batch, ready_.front());
  if (ready_.front().size > 0) spare_.push_back(std::move(ready_.front()));
  ready_.pop_front();
  --num_under_way_;
  changed_.NotifyAll();
  return ReadResult::kOk;
}

void BatchReader::UpdatePriorities(const Batch& batch,
                                   std::span<const float> priorities) {
  if (static_cast<int64_t>(priorities.size()) != batch.size) {
    throw InvalidArgument(
        fmt::format("BatchReader: {} priorities for a batch of {}",
                    priorities.size(), batch.size));
  }
  std::vector<Update> updates(options_.endpoints.size());
  for (size_t i = 0; i < priorities.size(); ++i) {
    if (!IsPriority(static_cast<double>(priorities[i]))) {
      throw InvalidArgument(fmt::format(
          "BatchReader: priority {} must be finite and >= 0", priorities[i]));
    }
    Update& update = updates[static_cast<size_t>(batch.shards[i])];
    update.shard = batch.shards[i];
    update.updates.push_back({batch.keys[i], priorities[i]});
  }
  MutexLock lock(mutex_);
  for (Update& update : updates) {
    if (!update.updates.empty()) updates_.push_back(std::move(update));
  }
  changed_.NotifyAll();
}

void BatchReader::SetPaused(bool is_paused) {
  MutexLock lock(mutex_);
  is_paused_ = is_paused;
  changed_.NotifyAll();
}

bool BatchReader::Checkpoint(uint64_t id, Clock::TimePoint deadline) {
  if (id == 0) throw InvalidArgument("BatchReader: a checkpoint needs an id");
  MutexLock lock(mutex_);
  checkpoint_ = {
      .id = id, .deadline = deadline, .num_missing = options_.endpoints.size()};
  changed_.NotifyAll();
  Clock::Real().WaitUntil(
      mutex_, changed_, deadline, [this]() REQUIRES(mutex_) {
        return checkpoint_.num_missing == 0 || is_closed_ || failure_;
      });
  // one that could not be sent in time is not sent later
  checkpoint_.is_sent = true;
  if (failure_) std::rethrow_exception(failure_);
  if (!checkpoint_.problem.empty()) throw CommError(checkpoint_.problem);
  return checkpoint_.num_missing == 0;
}

void BatchReader::Close() {
  {
    MutexLock lock(mutex_);
    is_closed_ = true;
    changed_.NotifyAll();
  }
  for (auto& thread : threads_) thread->RequestStop();
  for (auto& thread : threads_) thread->Join();
}

BatchReaderMetrics BatchReader::metrics() const {
  MutexLock lock(mutex_);
  BatchReaderMetrics metrics = metrics_;
  metrics.ready_batches = static_cast<int64_t>(ready_.size());
  return metrics;
}

void BatchReader::Fail() {
  MutexLock lock(mutex_);
  if (!failure_) failure_ = std::current_exception();
  changed_.NotifyAll();
}

// --- the network's thread ---

void BatchReader::Run(const Thread::StopToken& stop) {
  try {
    while (!stop.IsStopRequested()) {
      bool is_any_checked = false;
      for (Shard& shard : shards_) {
        is_any_checked |= CheckService(shard, !is_any_checked);
      }
      SendUpdates();
      AskForPostponed();
      const bool is_waiting = is_any_checked && AskForBatches();
      bool is_any_in_flight = false;
      for (size_t i = 0; i < shards_.size(); ++i) {
        is_any_in_flight |= !shards_[i].in_flight.empty() ||
                            shards_[i].checkpoint_request.has_value();
        Receive(shards_[i], static_cast<int32_t>(i), kLookInterval);
      }
      if (is_any_in_flight || !is_waiting) continue;
      MutexLock lock(mutex_);
      Clock::Real().WaitUntil(
          mutex_, changed_, Clock::Real().Now() + kIdleInterval,
          [this]() REQUIRES(mutex_) {
            return is_closed_ || !updates_.empty() ||
                   (checkpoint_.id != 0 && !checkpoint_.is_sent) ||
                   (!is_paused_ && num_under_way_ < options_.prefetch);
          });
    }
    SendUpdates();
  } catch (...) {
    Fail();
  }
}

// Whether the service is known to hold what this reader wants. One that is away
// must not hold up the others for long, unless `is_needed`.
bool BatchReader::CheckService(Shard& shard, bool is_needed) {
  if (shard.is_checked) return true;
  const Clock::TimePoint now = Clock::Real().Now();
  if (!is_needed && now < shard.next_check) return false;
  shard.next_check = now + kCheckInterval;
  rpc::CallOptions call;
  call.timeout = kIdleInterval / 4;
  call.is_idempotent = true;
  const rpc::CallReply reply = shard.client->Call(kDescribeKind, {}, call);
  if (reply.result != rpc::CallResult::kOk) return false;
  const ServiceInfo info = ServiceInfo::Decode(reply.payload);
  if (!(info.shape == options_.shape)) {
    throw CommError(fmt::format(
        "{}: the replay holds steps of other sizes than the reader '{}' "
        "expects; hint: give both the same task",
        shard.endpoint, options_.name));
  }
  shard.is_checked = true;
  return true;
}

// Starts batches while there is room for them. Whether all room is used.
bool BatchReader::AskForBatches() {
  while (true) {
    {
      MutexLock lock(mutex_);
      if (num_under_way_ >= options_.prefetch || is_closed_ || is_paused_) {
        return true;
      }
      ++num_under_way_;
    }
    auto assembly = std::make_shared<Assembly>();
    assembly->missing = options_.batch_size;
    Request(assembly, options_.batch_size);
  }
}

void BatchReader::AskForPostponed() {
  if (postponed_.empty() || Shares().empty()) return;
  for (const auto& [assembly, count] : std::exchange(postponed_, {})) {
    Request(assembly, count);
  }
}

// Empty while no service is up.
std::vector<double> BatchReader::Shares() const {
  const Clock::TimePoint now = Clock::Real().Now();
  std::vector<double> shares;
  double total = 0.0;
  for (const Shard& shard : shards_) {
    const bool is_up = shard.is_checked && now >= shard.down_until;
    shares.push_back(is_up ? shard.mass : 0.0);
    total += shares.back();
  }
  if (total == 0.0) return {};
  for (double& share : shares) share /= total;
  return shares;
}

void BatchReader::Request(const std::shared_ptr<Assembly>& assembly,
                          int64_t count) {
  const std::vector<double> shares = Shares();
  if (shares.empty()) {
    postponed_.emplace_back(assembly, count);
    return;
  }
  // systematic: service s gets count share_s draws, rounded up or down with
  // the right probability
  const double start = random_.Uniform();
  double end = 0.0;
  int64_t given = 0;
  for (size_t i = 0; i < shards_.size(); ++i) {
    end += shares[i];
    const bool is_last = i + 1 == shards_.size();
    const auto upto =
        is_last ? count
                : std::clamp<int64_t>(
                      static_cast<int64_t>(
                          std::ceil(end * static_cast<double>(count) - start)),
                      given, count);
    const int64_t wanted = upto - given;
    if (wanted == 0) continue;
    given = upto;
    const SampleRequest request{options_.table, static_cast<uint32_t>(wanted),
                                static_cast<uint32_t>(options_.wait.count())};
    rpc::CallOptions call;
    call.timeout = options_.wait + kGrace;
    const auto id =
        shards_[i].client->Start(kSampleKind, request.Encode(), call);
    if (!id.has_value()) {
      throw CommError(fmt::format("{}: too many requests are under way",
                                  shards_[i].endpoint));
    }
    shards_[i].in_flight[*id] = {assembly, wanted, shares[i]};
  }
}

void BatchReader::Receive(Shard& shard, int32_t index,
                          Clock::Duration timeout) {
  if (shard.in_flight.empty() && !shard.checkpoint_request.has_value()) {
    shard.client->Process(Clock::Duration(0));
    return;
  }
  while (const auto id = shard.client->WaitAny(timeout)) {
    auto in_flight = shard.in_flight.extract(*id);
    rpc::CallReply reply = shard.client->Wait(*id);
    if (!in_flight.empty()) {
      HandleReply(shard, index, std::move(in_flight.mapped()),
                  std::move(reply));
    } else if (shard.checkpoint_request == *id) {
      HandleCheckpointReply(shard, reply);
    }
    timeout = Clock::Duration(0);
  }
}

void BatchReader::HandleReply(Shard& shard, int32_t index,
                              SampleInFlight in_flight, rpc::CallReply reply) {
  Assembly& assembly = *in_flight.assembly;
  int64_t missing = in_flight.count;
  if (reply.result == rpc::CallResult::kOk) {
    const auto bytes = static_cast<int64_t>(rpc::SizeBytes(reply.payload));
    BatchMessage message(std::move(reply.payload), options_.shape);
    if (message.state() == BatchState::kClosed) {
      shard.down_until = Clock::Real().Now() + kRetryInterval;
    }
    if (message.table_mass() > 0.0) shard.mass = message.table_mass();
    if (message.size() > missing) {
      throw CommError(fmt::format("{}: {} items, {} were asked for",
                                  shard.endpoint, message.size(), missing));
    }
    missing -= message.size();
    assembly.missing -= message.size();
    if (message.size() > 0) {
      assembly.parts.push_back({index, in_flight.share, std::move(message)});
    }
    MutexLock lock(mutex_);
    metrics_.received_bytes += bytes;
    if (missing > 0) ++metrics_.partial_replies;
  } else if (reply.result == rpc::CallResult::kError &&
             (reply.error == rpc::ErrorCode::kInvalidArgument ||
              reply.error == rpc::ErrorCode::kMalformed)) {
    throw CommError(fmt::format("{}: {}", shard.endpoint, reply.error_text));
  } else {
    shard.down_until = Clock::Real().Now() + kRetryInterval;
    MutexLock lock(mutex_);
    ++metrics_.lost_requests;
  }
  if (missing > 0) Request(in_flight.assembly, missing);
  if (assembly.missing > 0) return;
  MutexLock lock(mutex_);
  received_.push_back(std::move(in_flight.assembly));
  changed_.NotifyAll();
}

void BatchReader::SendUpdates() {
  std::deque<Update> updates;
  std::optional<CheckpointCall> checkpoint;
  {
    // together: the checkpoint goes after the priorities given before it
    MutexLock lock(mutex_);
    updates.swap(updates_);
    if (checkpoint_.id != 0 && !checkpoint_.is_sent) {
      checkpoint = checkpoint_;
      checkpoint_.is_sent = true;
    }
  }
  int64_t num_sent = 0, num_dropped = 0;
  for (Update& update : updates) {
    const auto count = static_cast<int64_t>(update.updates.size());
    rpc::Client& client = *shards_[static_cast<size_t>(update.shard)].client;
    const UpdateRequest request{options_.table, std::move(update.updates)};
    // a priority is worth little later: never wait for a service, unless a
    // checkpoint is to hold it
    const auto timeout = checkpoint ? checkpoint->deadline - Clock::Real().Now()
                                    : Clock::Duration(0);
    const auto result = client.SendOneWay(
        kUpdateKind, request.Encode(), std::max(timeout, Clock::Duration(0)));
    (result == rpc::SendResult::kOk ? num_sent : num_dropped) += count;
  }
  if (checkpoint) SendCheckpoint(checkpoint->id, checkpoint->deadline);
  MutexLock lock(mutex_);
  metrics_.sent_updates += num_sent;
  metrics_.dropped_updates += num_dropped;
}

void BatchReader::SendCheckpoint(uint64_t id, Clock::TimePoint deadline) {
  // sent again, it would be of a later moment: so never by itself
  rpc::CallOptions call;
  call.timeout = std::max(deadline - Clock::Real().Now(), Clock::Duration(1));
  for (Shard& shard : shards_) {
    shard.checkpoint_request = shard.client->Start(
        kCheckpointKind, CheckpointRequest{id}.Encode(), call);
    if (!shard.checkpoint_request.has_value()) {
      throw CommError(
          fmt::format("{}: too many requests are under way", shard.endpoint));
    }
  }
}

void BatchReader::HandleCheckpointReply(Shard& shard,
                                        const rpc::CallReply& reply) {
  shard.checkpoint_request.reset();
  if (reply.result == rpc::CallResult::kTimeout) return;
  MutexLock lock(mutex_);
  if (reply.result != rpc::CallResult::kOk) {
    checkpoint_.problem = fmt::format(
        "{}: checkpoint {}: {}", shard.endpoint, checkpoint_.id,
        reply.result == rpc::CallResult::kError ? reply.error_text
                                                : "the connection was lost");
  }
  --checkpoint_.num_missing;
  changed_.NotifyAll();
}

// --- the decode threads ---

void BatchReader::Decode(const Thread::StopToken& stop) {
  try {
    FrameDecoder decoder;
    std::vector<std::byte> scratch;
    while (!stop.IsStopRequested()) {
      std::shared_ptr<Assembly> assembly;
      Batch batch;
      {
        MutexLock lock(mutex_);
        Clock::Real().WaitUntil(
            mutex_, changed_, Clock::Real().Now() + kIdleInterval,
            [this]()
                REQUIRES(mutex_) { return is_closed_ || !received_.empty(); });
        if (received_.empty()) continue;
        assembly = std::move(received_.front());
        received_.pop_front();
        if (!spare_.empty()) {
          batch = std::move(spare_.back());
          spare_.pop_back();
        }
      }
      Fill(*assembly, decoder, scratch, &batch);
      MutexLock lock(mutex_);
      ready_.push_back(std::move(batch));
      ++metrics_.batches;
      changed_.NotifyAll();
    }
  } catch (...) {
    Fail();
  }
}

void BatchReader::Fill(const Assembly& assembly, FrameDecoder& decoder,
                       std::vector<std::byte>& scratch, Batch* batch) const {
  const int64_t stack = assembly.parts.front().message.stack();
  Prepare(*batch, options_.batch_size, stack, options_.shape);
  const int64_t stack_bytes = stack * options_.shape.frame_bytes;
  int64_t row = 0;
  for (const Part& part : assembly.parts) {
    const BatchMessage& message = part.message;
    if (message.stack() != stack) {
      throw CommError(fmt::format("replay: stacks of {} and {} in one batch",
                                  stack, message.stack()));
    }
    for (int64_t i = 0; i < message.size(); ++i, ++row) {
      const auto r = static_cast<size_t>(row);
      const SampledItem& item = message.items()[static_cast<size_t>(i)];
      CopyRow(batch->observations, row, message.Observation(i));
      CopyRow(batch->next_observations, row, message.NextObservation(i));
      CopyRow(batch->actions, row, message.Action(i));
      if (stack_bytes > 0) {
        message.DecodeFrames(i, decoder, scratch,
                             RowOf(batch->frames, row, stack_bytes),
                             RowOf(batch->next_frames, row, stack_bytes));
      }
      batch->rewards[r] = item.reward;
      batch->discounts[r] = item.discount;
      batch->priorities[r] = item.priority;
      batch->probabilities[r] = item.probability * part.share;
      batch->times_sampled[r] = item.times_sampled;
      batch->keys[r] = item.key;
      batch->shards[r] = part.shard;
    }
  }
  if (options_.importance_exponent == 0.0) {
    std::fill(batch->weights.begin(), batch->weights.end(), 1.0f);
  } else {
    ImportanceWeights(batch->probabilities, options_.importance_exponent,
                      batch->weights);
  }
}

}  // namespace replicant::replay
