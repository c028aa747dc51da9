#include "replay/client/batch_reader.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/error.h"

namespace replicant::replay {
namespace {

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
  check("decode_threads", options.decode_threads, 0, 256);
  check("wait", options.wait.count(), 1, kMaxWaitMs);
  if (!(options.importance_exponent >= 0.0 &&
        options.importance_exponent <= 1.0)) {
    throw InvalidArgument(
        fmt::format("BatchReader: importance_exponent {} is outside [0, 1]",
                    options.importance_exponent));
  }
  return options;
}

}  // namespace

BatchReader::BatchReader(BatchReaderOptions options)
    : options_(Checked(std::move(options))),
      random_(options_.seed, "replay-reader"),
      assembler_({.name = options_.name,
                  .shape = options_.shape,
                  .batch_size = options_.batch_size,
                  .decode_threads = options_.decode_threads,
                  .importance_exponent = options_.importance_exponent,
                  .shares_memory = options_.shares_memory,
                  .on_ready = [this](Batch b) { PushReady(std::move(b)); },
                  .on_failure = [this] { Fail(); }}) {
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
    clients_.push_back(shard.client.get());
    shards_.push_back(std::move(shard));
  }
  thread_.emplace("replay-reader",
                  [this](const Thread::StopToken& s) { Run(s); });
}

BatchReader::~BatchReader() { Close(); }

ReadResult BatchReader::Next(Clock::TimePoint deadline, Batch* batch) {
  MutexLock lock(mutex_);
  Clock::Real().WaitUntil(
      mutex_, ready_changed_, deadline, [this]() REQUIRES(mutex_) {
        return !ready_.empty() || is_closed_ || failure_ || IsDrained();
      });
  if (failure_) std::rethrow_exception(failure_);
  if (is_closed_) return ReadResult::kClosed;
  if (ready_.empty()) {
    return IsDrained() ? ReadResult::kPaused : ReadResult::kTimeout;
  }
  std::swap(*batch, ready_.front());
  if (ready_.front().size > 0) spare_.push_back(std::move(ready_.front()));
  ready_.pop_front();
  --num_under_way_;
  --num_wanted_;
  wake_.Wake();
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
  wake_.Wake();
}

void BatchReader::SetPaused(bool is_paused) {
  MutexLock lock(mutex_);
  is_paused_ = is_paused;
  ready_changed_.NotifyAll();
  wake_.Wake();
}

void BatchReader::SetLimit(int64_t num_batches) {
  MutexLock lock(mutex_);
  num_wanted_ = num_batches;
  ready_changed_.NotifyAll();
  wake_.Wake();
}

void BatchReader::StartCheckpoint(uint64_t id, Clock::TimePoint deadline) {
  if (id == 0) throw InvalidArgument("BatchReader: a checkpoint needs an id");
  MutexLock lock(mutex_);
  checkpoint_ = {.id = id,
                 .deadline = deadline,
                 .is_sent = false,
                 .num_missing = options_.endpoints.size()};
  wake_.Wake();
}

void BatchReader::StartCheckpoint(uint64_t id,
                                  const std::filesystem::path& /*folder*/) {
  StartCheckpoint(id, Clock::Real().Now() + options_.checkpoint_timeout);
}

CheckpointState BatchReader::PollCheckpoint() {
  MutexLock lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  if (!checkpoint_.problem.empty()) throw CommError(checkpoint_.problem);
  const bool is_over =
      is_closed_ || Clock::Real().Now() >= checkpoint_.deadline;
  if (!checkpoint_.is_not_kept && checkpoint_.num_missing > 0 && !is_over) {
    return CheckpointState::kPending;
  }
  // a checkpoint that could not be sent in time is not sent later
  checkpoint_.is_sent = true;
  if (checkpoint_.is_not_kept) return CheckpointState::kNotKept;
  if (checkpoint_.num_missing == 0) return CheckpointState::kSaved;
  throw CommError("the replay has not saved its checkpoint in time");
}

CheckpointState BatchReader::Checkpoint(uint64_t id,
                                        Clock::TimePoint deadline) {
  StartCheckpoint(id, deadline);
  {
    MutexLock lock(mutex_);
    Clock::Real().WaitUntil(
        mutex_, ready_changed_, deadline, [this]() REQUIRES(mutex_) {
          return checkpoint_.num_missing == 0 || is_closed_ || failure_ ||
                 !checkpoint_.problem.empty();
        });
  }
  return PollCheckpoint();
}

void BatchReader::Close() {
  {
    MutexLock lock(mutex_);
    is_closed_ = true;
    ready_changed_.NotifyAll();
  }
  thread_->RequestStop();
  wake_.Wake();
  assembler_.Close();
  thread_->Join();
}

BatchReaderMetrics BatchReader::metrics() const {
  MutexLock lock(mutex_);
  BatchReaderMetrics metrics = metrics_;
  metrics.ready_batches = static_cast<int64_t>(ready_.size());
  return metrics;
}

void BatchReader::PushReady(Batch batch) {
  MutexLock lock(mutex_);
  ready_.push_back(std::move(batch));
  ++metrics_.batches;
  // others than Next() wait on it, too
  ready_changed_.NotifyAll();
}

void BatchReader::Fail() {
  MutexLock lock(mutex_);
  if (!failure_) failure_ = std::current_exception();
  ready_changed_.NotifyAll();
}

// --- the network's thread ---

void BatchReader::Run(const Thread::StopToken& stop) {
  try {
    while (!stop.IsStopRequested()) {
      rpc::Client::AwaitAny(clients_, wake_, RunOnce());
    }
    SendUpdates();
  } catch (...) {
    Fail();
  }
}

Clock::Duration BatchReader::RunOnce() {
  bool is_any_checked = false;
  for (Shard& shard : shards_) {
    is_any_checked |= CheckService(shard, !is_any_checked);
  }
  for (size_t i = 0; i < shards_.size(); ++i) {
    Receive(shards_[i], static_cast<int32_t>(i));
  }
  SendUpdates();
  AskForPostponed();
  if (is_any_checked) AskForBatches();
  if (!is_any_checked) return Clock::Duration(0);
  return postponed_.empty() ? Clock::Duration(kIdleInterval)
                            : Clock::Duration(kRetryInterval);
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
  for (const TableInfo& table : info.tables) {
    if (table.name == options_.table) stack_ = table.stack;
  }
  shard.is_checked = true;
  return true;
}

// Starts batches while there is room for them.
void BatchReader::AskForBatches() {
  while (true) {
    {
      MutexLock lock(mutex_);
      const bool is_full =
          num_under_way_ >= std::min(options_.prefetch, num_wanted_);
      // what is asked for now is of after a checkpoint that is on its way
      if (is_full || is_closed_ || is_paused_ || !checkpoint_.is_sent) return;
      ++num_under_way_;
    }
    Request(NewAssembly(), /*first_row=*/0, options_.batch_size);
  }
}

std::shared_ptr<BatchAssembly> BatchReader::NewAssembly() {
  Batch spare;
  {
    MutexLock lock(mutex_);
    if (!spare_.empty()) {
      spare = std::move(spare_.back());
      spare_.pop_back();
    }
  }
  bool takes_memory = false;
  for (const Shard& shard : shards_) takes_memory |= shard.takes_memory;
  return assembler_.Begin(std::move(spare), stack_, takes_memory);
}

void BatchReader::AskForPostponed() {
  if (postponed_.empty() || Shares().empty()) return;
  for (const Postponed& rows : std::exchange(postponed_, {})) {
    if (rows.assembly->is_given_up) continue;
    Request(rows.assembly, rows.first_row, rows.count);
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

void BatchReader::Request(const std::shared_ptr<BatchAssembly>& assembly,
                          int64_t first_row, int64_t count) {
  const std::vector<double> shares = Shares();
  if (shares.empty()) {
    postponed_.push_back({assembly, first_row, count});
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
    Shard& shard = shards_[i];
    SampleInFlight rows{assembly, first_row + given, wanted, shares[i], {}};
    if (shard.takes_memory) {
      rows.target = assembler_.TargetOf(*assembly, rows.first_row, wanted);
    }
    given = upto;
    SampleRequest request{options_.table, static_cast<uint32_t>(wanted),
                          static_cast<uint32_t>(options_.wait.count())};
    if (rows.target) request.place = rows.target->place;
    rpc::CallOptions call;
    call.timeout = options_.wait + kGrace;
    const auto id = shard.client->Start(kSampleKind, request.Encode(), call);
    if (!id.has_value()) {
      throw CommError(
          fmt::format("{}: too many requests are under way", shard.endpoint));
    }
    shard.in_flight[*id] = std::move(rows);
  }
}

void BatchReader::Receive(Shard& shard, int32_t index) {
  shard.client->Process(Clock::Duration(0));
  while (const auto id = shard.client->WaitAny(Clock::Duration(0))) {
    auto in_flight = shard.in_flight.extract(*id);
    rpc::CallReply reply = shard.client->Wait(*id);
    if (!in_flight.empty()) {
      HandleReply(shard, index, std::move(in_flight.mapped()),
                  std::move(reply));
    } else if (shard.checkpoint_request == *id) {
      HandleCheckpointReply(shard, reply);
    }
  }
}

void BatchReader::HandleReply(Shard& shard, int32_t index,
                              SampleInFlight in_flight, rpc::CallReply reply) {
  if (reply.result == rpc::CallResult::kError &&
      (reply.error == rpc::ErrorCode::kInvalidArgument ||
       reply.error == rpc::ErrorCode::kMalformed)) {
    throw CommError(fmt::format("{}: {}", shard.endpoint, reply.error_text));
  }
  BatchAssembly& assembly = *in_flight.assembly;
  if (assembly.is_given_up) return;
  if (reply.result != rpc::CallResult::kOk) {
    HandleLoss(shard, in_flight);
    return;
  }
  const int64_t taken =
      TakeReply(shard, index, in_flight, std::move(reply.payload));
  assembly.missing -= taken;
  if (taken < in_flight.count) {
    Request(in_flight.assembly, in_flight.first_row + taken,
            in_flight.count - taken);
  }
  if (assembly.missing == 0) HandOver(std::move(in_flight.assembly));
}

int64_t BatchReader::TakeReply(Shard& shard, int32_t index,
                               const SampleInFlight& in_flight,
                               rpc::Message payload) {
  const auto bytes = static_cast<int64_t>(rpc::SizeBytes(payload));
  BatchMessage message(std::move(payload), options_.shape,
                       in_flight.target ? &*in_flight.target : nullptr);
  if (message.state() == BatchState::kClosed) {
    shard.down_until = Clock::Real().Now() + kRetryInterval;
  }
  if (message.table_mass() > 0.0) shard.mass = message.table_mass();
  shard.total_steps = message.total_steps();
  const int64_t taken = message.size();
  if (taken > in_flight.count) {
    throw CommError(fmt::format("{}: {} items, {} were asked for",
                                shard.endpoint, taken, in_flight.count));
  }
  if (message.stack() != stack_) {
    throw CommError(fmt::format("{}: stacks of {}, want {}", shard.endpoint,
                                message.stack(), stack_));
  }
  const bool is_in_memory = message.AreRowsInMemory();
  if (in_flight.target && !is_in_memory && shard.takes_memory) {
    spdlog::info("{}: batches come by messages: no memory is shared",
                 shard.endpoint);
    shard.takes_memory = false;
  }
  if (taken > 0) {
    in_flight.assembly->parts.push_back(
        {index, in_flight.share, in_flight.first_row, std::move(message)});
  }
  MutexLock lock(mutex_);
  metrics_.received_bytes += bytes;
  if (is_in_memory) ++metrics_.memory_replies;
  if (taken < in_flight.count) ++metrics_.partial_replies;
  return taken;
}

void BatchReader::HandleLoss(Shard& shard, const SampleInFlight& in_flight) {
  shard.down_until = Clock::Real().Now() + kRetryInterval;
  {
    MutexLock lock(mutex_);
    ++metrics_.lost_requests;
  }
  if (!in_flight.target) {
    Request(in_flight.assembly, in_flight.first_row, in_flight.count);
    return;
  }
  // the service may still write to the memory: that is left to it
  in_flight.assembly->is_given_up = true;
  Request(NewAssembly(), /*first_row=*/0, options_.batch_size);
}

void BatchReader::HandOver(std::shared_ptr<BatchAssembly> assembly) {
  assembly->batch.total_steps = 0;
  for (const Shard& shard : shards_) {
    assembly->batch.total_steps += shard.total_steps;
  }
  assembler_.Finish(std::move(assembly));
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
    const auto timeout = checkpoint
                             ? std::clamp<Clock::Duration>(
                                   checkpoint->deadline - Clock::Real().Now(),
                                   Clock::Duration(0), kGrace)
                             : Clock::Duration(0);
    const auto result =
        client.SendOneWay(kUpdateKind, request.Encode(), timeout);
    (result == rpc::SendResult::kOk ? num_sent : num_dropped) += count;
  }
  if (checkpoint && num_dropped == 0) {
    SendCheckpoint(checkpoint->id, checkpoint->deadline);
  }
  MutexLock lock(mutex_);
  if (checkpoint && num_dropped > 0) {
    checkpoint_.problem = fmt::format(
        "checkpoint {}: the last priorities could not be sent", checkpoint->id);
    ready_changed_.NotifyAll();
  }
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
  if (reply.result == rpc::CallResult::kError &&
      reply.error == rpc::ErrorCode::kInvalidArgument) {
    checkpoint_.is_not_kept = true;
  } else if (reply.result != rpc::CallResult::kOk) {
    checkpoint_.problem = fmt::format(
        "{}: checkpoint {}: {}", shard.endpoint, checkpoint_.id,
        reply.result == rpc::CallResult::kError ? reply.error_text
                                                : "the connection was lost");
  }
  --checkpoint_.num_missing;
  ready_changed_.NotifyAll();
}

}  // namespace replicant::replay
