// The network thread of BatchReader. Its loop receives replies, sends
// priorities and a checkpoint's requests, and starts batches while there is
// room for them.
//
// A batch begins as an assembly without rows. Request() divides rows of it
// among the services that are up, in proportion to their masses. A reply may
// bring fewer rows than requested, or none; the rest is requested again, from
// whichever services are up then. So an assembly always knows how many rows are
// missing, and every missing row is either requested or postponed until some
// service is up and has enough items. A complete assembly goes to the decode
// threads.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "replay/client/batch_reader.h"

namespace replicant::replay {
namespace {

// Pause between attempts to reach a service that has not answered yet, and
// between attempts to reach a lost one.
constexpr auto kCheckInterval = std::chrono::seconds(1);
constexpr auto kRetryInterval = std::chrono::milliseconds(100);
constexpr auto kIdleInterval = std::chrono::milliseconds(200);
// Interval at which several services are asked for the states of their tables.
constexpr auto kStatusInterval = std::chrono::milliseconds(200);
// Interval at which services are asked for new frames.
constexpr auto kFramesInterval = std::chrono::milliseconds(20);
// Time that a service has to answer after the end of a request's wait.
constexpr auto kGrace = std::chrono::seconds(5);

}  // namespace

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
  AskForStatus();
  AskForFrames();
  AskForPostponed();
  if (is_any_checked) AskForBatches();
  if (!is_any_checked) return Clock::Duration(0);
  if (shards_[0].kept->is_on()) return kFramesInterval;
  return postponed_.empty() ? Clock::Duration(kIdleInterval)
                            : Clock::Duration(kRetryInterval);
}

// Returns whether the service is known to have the reader's StepShape. A
// service that is away must not hold up the others for long, unless
// `is_needed`.
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
  const ServiceInfo info = rpc::DecodeMessage<ServiceInfo>(reply.payload);
  if (!(info.shape == options_.shape)) {
    throw CommError(
        fmt::format("{}: the replay's steps differ in size from those that "
                    "reader '{}' expects; hint: give both the same task",
                    shard.endpoint, options_.name));
  }
  for (const TableInfo& table : info.tables) {
    if (table.name != options_.table) continue;
    CheckForm(shard.endpoint, {.stack = table.stack, .window = table.window});
  }
  shard.is_checked = true;
  return true;
}

void BatchReader::CheckForm(const std::string& endpoint,
                            const BatchForm& form) {
  if (options_.window && *options_.window != form.window) {
    throw CommError(
        fmt::format("{}: table '{}' has {}, but reader '{}' expects {}; hint: "
                    "give each workload a separate table",
                    endpoint, options_.table, ToString(form), options_.name,
                    ToString(BatchForm{.window = *options_.window})));
  }
  if (!form_) form_ = form;
  if (form != *form_) {
    throw CommError(
        fmt::format("{}: table '{}' has {} with stacks of {}, but another "
                    "service's has {} with stacks of {}",
                    endpoint, options_.table, ToString(form), form.stack,
                    ToString(*form_), form_->stack));
  }
}

// Starts batches while there is room for them.
void BatchReader::AskForBatches() {
  while (true) {
    {
      MutexLock lock(mutex_);
      const bool is_full =
          num_under_way_ >= std::min(options_.prefetch, num_wanted_);
      // a request now would come after a checkpoint that is not sent yet
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
  auto assembly = assembler_.Begin(std::move(spare),
                                   form_.value_or(BatchForm()), takes_memory);
  assembly->batch.reader_id = id_;
  assembly->batch.table = options_.table;
  assembly->batch.num_restarts.clear();
  for (const Shard& shard : shards_) {
    assembly->batch.num_restarts.push_back(shard.num_restarts);
  }
  return assembly;
}

void BatchReader::AskForPostponed() {
  if (postponed_.empty() || Shares().empty()) return;
  for (const Postponed& rows : std::exchange(postponed_, {})) {
    if (rows.assembly->is_given_up) continue;
    Request(rows.assembly, rows.first_row, rows.count);
  }
}

void BatchReader::AskForStatus() {
  if (shards_.size() == 1) return;
  const Clock::TimePoint now = Clock::Real().Now();
  for (Shard& shard : shards_) {
    if (!shard.is_checked || shard.status_request || now < shard.next_status) {
      continue;
    }
    shard.next_status = now + kStatusInterval;
    rpc::CallOptions call;
    call.timeout = kGrace;
    call.is_idempotent = true;
    shard.status_request = shard.client->Start(kStatusKind, {}, call);
  }
}

void BatchReader::HandleStatus(Shard& shard, const rpc::CallReply& reply) {
  shard.status_request.reset();
  if (reply.result != rpc::CallResult::kOk) return;
  shard.table = ParseTableState(
      rpc::DecodeMessage<StatusReply>(reply.payload).json, options_.table);
  if (shard.table) shard.mass = shard.table->mass;
}

void BatchReader::AskForFrames() {
  const Clock::TimePoint now = Clock::Real().Now();
  for (Shard& shard : shards_) {
    if (!shard.is_checked || !shard.kept->is_on() || shard.frames_request ||
        now < shard.next_frames) {
      continue;
    }
    shard.next_frames = now + kFramesInterval;
    rpc::CallOptions call;
    call.timeout = kGrace;
    call.is_idempotent = true;
    shard.frames_request = shard.client->Start(
        kFramesKind, rpc::EncodeMessage(shard.kept->Request()), call);
  }
}

void BatchReader::HandleFrames(Shard& shard, const rpc::CallReply& reply) {
  shard.frames_request.reset();
  if (reply.result != rpc::CallResult::kOk) return;
  KeptFrames& frames = *shard.kept;
  const int64_t bytes = frames.size_bytes();
  const int64_t fetched = frames.num_fetched();
  const int64_t evicted = frames.num_evicted();
  // more may wait
  if (frames.Take(FramesReply::Decode(reply.payload)) > 0) {
    shard.next_frames = {};
  }
  ForgetFrames(shard);
  const MutexLock lock(mutex_);
  metrics_.received_bytes +=
      static_cast<int64_t>(rpc::SizeBytes(reply.payload));
  metrics_.kept_frames_bytes += frames.size_bytes() - bytes;
  metrics_.fetched_frames += frames.num_fetched() - fetched;
  metrics_.evicted_frames += frames.num_evicted() - evicted;
}

void BatchReader::ForgetFrames(Shard& shard) {
  uint64_t first_needed = shard.kept->range().first_serial;
  for (const auto& [id, request] : shard.in_flight) {
    first_needed = std::min(first_needed, request.kept.first_serial);
  }
  shard.kept->Forget(first_needed);
}

bool BatchReader::HaveEnough() const {
  if (shards_.size() == 1) return true;
  int64_t size = 0, min_size = 0;
  bool is_any_full = false, is_any_unknown = false;
  for (const Shard& shard : shards_) {
    if (!shard.table) {
      is_any_unknown = true;
      continue;
    }
    size += shard.table->size;
    min_size += shard.table->min_size;
    is_any_full |= shard.table->holds_writers_up;
  }
  if (is_any_unknown && Clock::Real().Now() < first_draws_at_) return false;
  // otherwise a writer that waits for draws would also wait for the other
  // tables
  return size >= min_size || is_any_full;
}

// Empty while no service is up.
std::vector<double> BatchReader::Shares() const {
  if (!HaveEnough()) return {};
  const Clock::TimePoint now = Clock::Real().Now();
  std::vector<double> shares;
  std::vector<double> sizes;  // in place of the masses, if all are zero
  for (const Shard& shard : shards_) {
    const bool can_draw =
        shards_.size() == 1 || (shard.table && shard.table->can_draw());
    const bool is_up = shard.is_checked && now >= shard.down_until && can_draw;
    shares.push_back(is_up ? shard.mass : 0.0);
    sizes.push_back(
        is_up && shard.table ? static_cast<double>(shard.table->size) : 0.0);
  }
  const auto sum = [](const std::vector<double>& of) {
    return std::accumulate(of.begin(), of.end(), 0.0);
  };
  double total = sum(shares);
  if (total == 0.0) {
    shares = std::move(sizes);
    total = sum(shares);
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
  // systematic sampling: service s gets count share_s draws, rounded up or down
  // so that the mean is exact
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
    SampleInFlight rows{assembly, first_row + given, wanted, shares[i], {}, {}};
    if (shard.takes_memory) {
      rows.target = assembler_.TargetOf(*assembly, rows.first_row, wanted);
    }
    given = upto;
    SampleRequest request{options_.table, static_cast<uint32_t>(wanted),
                          static_cast<uint32_t>(options_.wait.count())};
    request.window = static_cast<uint32_t>(form_.value_or(BatchForm()).window);
    if (rows.target) request.place = rows.target->place;
    if (shard.kept->is_on()) {
      rows.kept = shard.kept->range();
      request.kept = rows.kept;
    }
    rpc::CallOptions call;
    call.timeout = options_.wait + kGrace;
    const auto id =
        shard.client->Start(kSampleKind, rpc::EncodeMessage(request), call);
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
    } else if (shard.status_request == *id) {
      HandleStatus(shard, reply);
    } else if (shard.frames_request == *id) {
      HandleFrames(shard, reply);
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
  int64_t taken = 0;
  try {
    taken = TakeReply(shard, index, in_flight, std::move(reply.payload));
  } catch (const MissingFrames&) {
    // drawn before its service restarted
    HandleLoss(shard, in_flight);
    return;
  }
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
                       in_flight.target ? &*in_flight.target : nullptr,
                       [&](uint64_t serial) -> KeptBlock {
                         const KeptRange now = shard.kept->range();
                         // a restarted service gives serials again
                         return now.token == in_flight.kept.token
                                    ? shard.kept->Find(serial)
                                    : KeptBlock();
                       });
  if (message.state() == BatchState::kClosed) {
    shard.down_until = Clock::Real().Now() + kRetryInterval;
  }
  if (message.table_mass() > 0.0) shard.mass = message.table_mass();
  if (std::exchange(shard.is_restarted, false)) {
    shard.lost_steps =
        std::max(shard.lost_steps, shard.total_steps - message.total_steps());
  }
  shard.total_steps = message.total_steps() + shard.lost_steps;
  const int64_t taken = message.size();
  if (taken > in_flight.count) {
    throw CommError(fmt::format("{}: {} items, but {} were requested",
                                shard.endpoint, taken, in_flight.count));
  }
  CheckForm(shard.endpoint, message.form());
  const bool is_in_memory = message.AreRowsInMemory();
  const int64_t drawn_frames = message.num_frames();
  const int64_t drawn_kept = message.num_kept_frames();
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
  metrics_.drawn_frames += drawn_frames;
  metrics_.drawn_kept_frames += drawn_kept;
  if (drawn_frames > 0) {
    hit_share_ =
        static_cast<double>(drawn_kept) / static_cast<double>(drawn_frames);
  }
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
  // the service may still write to the memory of this assembly: leave it
  in_flight.assembly->is_given_up = true;
  Request(NewAssembly(), /*first_row=*/0, options_.batch_size);
}

void BatchReader::HandOver(std::shared_ptr<BatchAssembly> assembly) {
  Batch& batch = assembly->batch;
  {
    MutexLock lock(mutex_);
    batch.lost_steps = lost_steps_before_;
  }
  batch.total_steps = batch.lost_steps;
  for (const Shard& shard : shards_) {
    batch.total_steps += shard.total_steps;
    batch.lost_steps += shard.lost_steps;
  }
  assembler_.Finish(std::move(assembly));
}

void BatchReader::SendUpdates() {
  std::deque<Update> updates;
  std::optional<CheckpointCall> checkpoint;
  {
    // at once, so that the checkpoint follows the priorities given before it
    MutexLock lock(mutex_);
    updates.swap(updates_);
    if (checkpoint_.id != 0 && !checkpoint_.is_sent) {
      checkpoint = checkpoint_;
      checkpoint_.is_sent = true;
    }
  }
  int64_t num_sent = 0, num_dropped = 0, num_stale = 0;
  for (Update& update : updates) {
    const auto count = static_cast<int64_t>(update.updates.size());
    const Shard& shard = shards_[static_cast<size_t>(update.shard)];
    if (update.num_restarts != shard.num_restarts) {
      num_stale += count;
      continue;
    }
    const UpdateRequest request{options_.table, std::move(update.updates)};
    // a late priority is worth little: wait for a service only if a checkpoint
    // must hold the priorities
    const auto timeout = checkpoint
                             ? std::clamp<Clock::Duration>(
                                   checkpoint->deadline - Clock::Real().Now(),
                                   Clock::Duration(0), kGrace)
                             : Clock::Duration(0);
    const auto result =
        shard.client->SendOneWay(kUpdateKind, request.Encode(), timeout);
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
  metrics_.dropped_updates += num_dropped + num_stale;
}

void BatchReader::SendCheckpoint(uint64_t id, Clock::TimePoint deadline) {
  // never sent again: a later request would show a later moment
  rpc::CallOptions call;
  call.timeout = std::max(deadline - Clock::Real().Now(), Clock::Duration(1));
  for (Shard& shard : shards_) {
    shard.checkpoint_request = shard.client->Start(
        kCheckpointKind, rpc::EncodeMessage(CheckpointRequest{id}), call);
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
  // a late answer to the checkpoint before this one
  if (!checkpoint_.is_sent) return;
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
