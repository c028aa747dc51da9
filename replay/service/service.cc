// All requests are handled in the thread of the server's loop. A request that
// the shard cannot satisfy now waits in one of three queues: writers with items
// that a rate limiter holds back (waiting_writers_), answers to writers without
// credits (pending_acks_), and batches that are not full (pending_batches_).
//
// Every request, and every tick, ends with Pump(). It inserts waiting items and
// draws waiting batches in turn until neither helps the other: an insert can
// admit samples and a sample can admit inserts. EndLate() then answers requests
// that have reached their deadline with the items drawn so far.
//
// Full batches are encoded by BatchEncoder's threads, which post the message
// back to the loop. Checkpoints are written by CheckpointSaver's thread in the
// same way.
#include "replay/service/service.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/rpc/wire.h"
#include "replay/format/batch_codec.h"
#include "replay/format/chunk.h"
#include "replay/service/service_status.h"

namespace replicant::replay {

using rpc::Request;
using rpc::Responder;

namespace {

constexpr auto kCheckpointTimeout = std::chrono::hours(1);
constexpr size_t kMaxWriters = 65536;

}  // namespace

Service::Service(Shard* shard, ServiceOptions options, Clock* clock)
    : shard_(shard),
      options_(options),
      clock_(clock),
      pending_batches_(static_cast<size_t>(shard->num_tables())),
      backlog_(options.max_unread_bytes),
      watch_(*shard, clock->Now()) {
  if (options_.credits < 1 || options_.credits > kMaxChunksPerInsert) {
    throw InvalidArgument(
        fmt::format("replay service: credits {} are outside "
                    "[1, {}]",
                    options_.credits, kMaxChunksPerInsert));
  }
  if (shard->num_tables() > kMaxTables) {
    throw InvalidArgument(
        fmt::format("replay service: {} tables; at most {} are allowed",
                    shard->num_tables(), kMaxTables));
  }
  for (const TableConfig& table : shard->config().tables) {
    if (!table.name.empty() && table.name.size() <= kMaxNameBytes) continue;
    throw InvalidArgument(
        fmt::format("replay service: table '{}': a name has 1 to {} bytes",
                    table.name, kMaxNameBytes));
  }
  // the writers of a restored shard may return; their items go in meanwhile
  for (const uint64_t id : shard->OpenWriters()) {
    Writer& writer = writers_[id];
    if (shard->Resume(id) == InsertResult::kInserted) continue;
    writer.unadmitted = 1;
    writer.is_waiting = true;
    waiting_writers_.push_back(id);
  }
  if (!writers_.empty()) {
    absent_until_ = clock->Now() + options_.return_timeout;
  }
  if (options_.encode_threads > 0 && shard->config().shape.frame_bytes > 0) {
    encoder_ = std::make_unique<BatchEncoder>(options_.encode_threads);
  }
}

void Service::AttachTo(rpc::Server& server) {
  server_ = &server;
  server.Handle(kDescribeKind, [this](Request& request, Responder responder) {
    rpc::CheckNumParts("replay.describe", request.payload, 0);
    responder.Reply(rpc::EncodeMessage(Info()));
  });
  server.Handle(kInsertKind, [this](Request& request, Responder responder) {
    HandleInsert(request, responder);
  });
  server.Handle(kCloseWriterKind,
                [this](Request& request, Responder responder) {
                  HandleCloseWriter(request, responder);
                });
  server.Handle(kSampleKind, [this](Request& request, Responder responder) {
    HandleSample(request, responder);
  });
  server.Handle(kFramesKind, [this](Request& request, Responder responder) {
    HandleFrames(request, responder);
  });
  server.Handle(kUpdateKind, [this](Request& request, Responder responder) {
    HandleUpdate(request, responder);
  });
  server.Handle(
      kStatusKind,
      [this](Request& request, Responder responder) {
        rpc::CheckNumParts("replay.status", request.payload, 0);
        responder.Reply(rpc::EncodeMessage(StatusReply{StatusJson()}));
      },
      rpc::Server::Answers::kAtOnce);
  server.Handle(kCheckpointKind, [this](Request& request, Responder responder) {
    HandleCheckpoint(request, responder);
  });
  server.OnTick([this] { HandleTick(); });
  server.OnEnd([this] {
    if (encoder_ != nullptr) encoder_->Stop();
  });
  server.OnPeerExpired(
      [this](const rpc::Peer& peer) { HandlePeerExpired(peer); });
}

ServiceInfo Service::Info() const {
  ServiceInfo info{shard_->config().shape, options_.credits, {}};
  for (const TableConfig& table : shard_->config().tables) {
    const NStepConfig& items = table.n_step;
    info.tables.push_back({.name = table.name,
                           .n_step = static_cast<uint32_t>(items.n_step),
                           .stack = static_cast<uint32_t>(items.stack),
                           .discount = items.discount,
                           .window = static_cast<uint32_t>(items.window),
                           .period = static_cast<uint32_t>(items.period)});
  }
  return info;
}

ServiceCounts Service::counts() const {
  ServiceCounts counts = counts_;
  counts.shared_memory_bytes = memories_.size_bytes();
  return counts;
}

std::string Service::StatusJson() const {
  std::optional<CheckpointStatus> checkpoints;
  if (saver_ != nullptr) checkpoints = saver_->Status();
  return ToJson(shard_->Status(), counts(), watch_.rates(),
                server_ == nullptr ? rpc::ServerMetrics{} : server_->metrics(),
                checkpoints ? &*checkpoints : nullptr);
}

int64_t Service::TableOf(std::string_view message,
                         const std::string& name) const {
  if (const auto table = shard_->FindTable(name)) return *table;
  std::vector<std::string> names;
  for (const TableConfig& table : shard_->config().tables) {
    names.push_back(table.name);
  }
  throw InvalidArgument(fmt::format("{}: no table '{}'; allowed: {}", message,
                                    name, fmt::join(names, ", ")));
}

// --- checkpoints ---

void Service::HandleCheckpoint(Request& request, Responder responder) {
  const auto checkpoint =
      rpc::DecodeMessage<CheckpointRequest>(request.payload);
  if (saver_ == nullptr) {
    throw InvalidArgument(
        "replay.checkpoint: this service keeps no checkpoints; hint: give it a "
        "checkpoint_folder");
  }
  // writing takes as long as the disk needs
  responder.SetDeadline(clock_->Now() + kCheckpointTimeout);
  const auto answer = [responder](const std::string& problem) {
    if (problem.empty()) {
      responder.Reply({});
    } else {
      responder.ReplyError(rpc::ErrorCode::kFailed, problem);
    }
  };
  const bool is_started =
      saver_->Start(checkpoint.id, [this, answer](const std::string& problem) {
        server_->Post([answer, problem] { answer(problem); });
      });
  if (!is_started) {
    responder.ReplyError(
        rpc::ErrorCode::kBusy,
        fmt::format("replay.checkpoint: {} checkpoints wait to be written",
                    CheckpointSaver::kMaxWaiting));
  }
}

// --- writers ---

uint32_t Service::CreditsOf(const Writer& writer) const {
  return options_.credits - std::min(options_.credits, writer.unadmitted);
}

Service::Writer* Service::FindOrAddWriter(uint64_t id) {
  const auto known = writers_.find(id);
  if (known != writers_.end()) return &known->second;
  return writers_.size() < kMaxWriters ? &writers_[id] : nullptr;
}

void Service::HandleInsert(Request& request, Responder responder) {
  const InsertRequest insert = InsertRequest::Decode(request.payload);
  ++counts_.inserts;
  Writer* const writer = FindOrAddWriter(insert.writer);
  if (writer == nullptr) {
    responder.ReplyError(rpc::ErrorCode::kBusy,
                         fmt::format("replay.insert: the service has reached "
                                     "its limit of {} open writers",
                                     kMaxWriters));
    return;
  }
  writer->peer = request.peer_id;
  watch_.NoteLostSteps(shard_->NoteStepsOf(
      insert.writer, static_cast<int64_t>(insert.base_steps)));
  PendingAck pending{insert.writer, Take(insert, *writer), {}, responder};
  const bool must_wait =
      pending.ack.credits == 0 && insert.wait_ms > 0 && !is_closed_;
  if (must_wait) {
    pending.deadline =
        clock_->Now() + std::chrono::milliseconds(insert.wait_ms);
    pending_acks_.push_back(std::move(pending));
  } else {
    Answer(pending);
  }
  Pump();
}

InsertAck Service::Take(const InsertRequest& request, Writer& writer) {
  InsertAck ack;
  const uint64_t last = shard_->LastSequence(request.writer);
  uint64_t expected = std::max(last + 1, request.base_sequence);
  std::erase_if(writer.dropped, [&](uint64_t dropped) {
    return dropped < request.base_sequence;
  });
  uint64_t sequence = request.first_sequence;
  for (const auto& block : request.blocks) {
    if (sequence > expected) {
      ack.state = InsertState::kOutOfOrder;
      ++counts_.out_of_order;
      break;
    }
    if (sequence < expected) {
      ++counts_.duplicate_groups;
      // the answer that reported it may be lost
      if (std::ranges::binary_search(writer.dropped, sequence)) {
        ack.dropped.push_back(sequence);
      }
    } else if (TakeChunk(request.writer, sequence, block, writer, &ack)) {
      ++expected;
    } else {
      break;
    }
    ++sequence;
  }
  if (is_closed_) ack.state = InsertState::kClosed;
  if (ack.state == InsertState::kTaken && writer.is_waiting) {
    ack.state = InsertState::kWaiting;
  }
  ack.last_sequence = shard_->LastSequence(request.writer);
  ack.credits = CreditsOf(writer);
  return ack;
}

bool Service::TakeChunk(uint64_t id, uint64_t sequence,
                        std::span<const std::byte> block, Writer& writer,
                        InsertAck* ack) {
  if (CreditsOf(writer) == 0) {
    ack->state = InsertState::kNoCredits;
    ++counts_.refused_no_credits;
    return false;
  }
  std::shared_ptr<Chunk> chunk;
  try {
    chunk = std::make_shared<Chunk>(
        std::vector<std::byte>(block.begin(), block.end()),
        shard_->config().shape);
    if (shard_->config().has_float_rows && !chunk->view.HasFiniteRows()) {
      throw IoError("an observation or an action is not finite");
    }
  } catch (const IoError& e) {
    throw rpc::MalformedMessage(fmt::format(
        "replay.insert: chunk {} of writer {:#x}: {}", sequence, id, e.what()));
  }
  // throws if the journal cannot be written: the writer sends the chunk again
  const InsertResult result = shard_->TryInsert(id, sequence, std::move(chunk));
  switch (result) {
    case InsertResult::kInserted:
      break;
    case InsertResult::kWait:
      ++writer.unadmitted;
      if (!writer.is_waiting) waiting_writers_.push_back(id);
      writer.is_waiting = true;
      break;
    case InsertResult::kDropped:
      ack->dropped.push_back(sequence);
      writer.dropped.push_back(sequence);
      if (writer.dropped.size() > kMaxChunksPerInsert) {
        writer.dropped.pop_front();
      }
      break;
    case InsertResult::kNoRoom:
      ack->state = InsertState::kNoRoom;
      ++counts_.refused_no_room;
      return false;
    case InsertResult::kClosed:
      ack->state = InsertState::kClosed;
      return false;
  }
  return true;
}

void Service::Answer(const PendingAck& pending) {
  pending.responder.Reply(rpc::EncodeMessage(pending.ack));
}

void Service::HandleCloseWriter(Request& request, Responder responder) {
  const auto close = rpc::DecodeMessage<CloseWriterRequest>(request.payload);
  CloseWriters({close.writer});
  responder.Reply({});
  Pump();
}

void Service::CloseWriters(const std::vector<uint64_t>& ids) {
  shard_->CloseWriters(ids);
  for (const uint64_t id : ids) writers_.erase(id);
  std::erase_if(waiting_writers_,
                [this](uint64_t id) { return !writers_.contains(id); });
  // the steps are in the shard and no item waits any more
  std::erase_if(pending_acks_, [this](PendingAck& pending) {
    if (writers_.contains(pending.writer)) return false;
    pending.ack.credits = options_.credits;
    Answer(pending);
    return true;
  });
}

void Service::ForgetAbsentWriters() {
  if (!absent_until_.has_value() || clock_->Now() < *absent_until_) return;
  absent_until_.reset();
  std::vector<uint64_t> absent;
  for (const auto& [id, writer] : writers_) {
    if (writer.peer == 0) absent.push_back(id);
  }
  if (absent.empty()) return;
  // no warning: a run that is resumed always has new writers
  spdlog::info(
      "replay: {} open episodes are dropped: their writers did not return "
      "after the restart",
      absent.size());
  CloseWriters(absent);
  counts_.expired_writers += static_cast<int64_t>(absent.size());
}

void Service::HandlePeerExpired(const rpc::Peer& peer) {
  std::vector<uint64_t> gone;
  for (const auto& [id, writer] : writers_) {
    if (writer.peer == peer.id) gone.push_back(id);
  }
  // one line per client, however many writers it has; none if it leaves nothing
  // behind
  const std::vector<uint64_t> open = shard_->OpenWriters();
  const auto num_open = std::ranges::count_if(
      gone, [&](uint64_t id) { return std::ranges::binary_search(open, id); });
  if (num_open > 0) {
    spdlog::warn("replay: '{}' is silent: {} open episodes are dropped",
                 peer.name, num_open);
  }
  CloseWriters(gone);
  counts_.expired_writers += static_cast<int64_t>(gone.size());
  for (size_t t = 0; t < pending_batches_.size(); ++t) {
    auto& batches = pending_batches_[t];
    const size_t num_gone =
        std::erase_if(batches, [&](const PendingBatch& pending) {
          if (pending.peer != peer.id) return false;
          counts_.undelivered_items +=
              static_cast<int64_t>(pending.batch.items.size());
          return true;
        });
    if (num_gone > 0 && batches.empty()) {
      shard_->ForgetSampleWait(static_cast<int64_t>(t));
    }
  }
  memories_.ForgetPeer(peer.id);
  Pump();
}

// --- readers ---

BatchForm Service::FormOf(int64_t table) const {
  return shard_->config().tables[static_cast<size_t>(table)].n_step.form();
}

void Service::HandleSample(Request& request, Responder responder) {
  const SampleRequest sample =
      rpc::DecodeMessage<SampleRequest>(request.payload);
  const int64_t table = TableOf("replay.sample", sample.table);
  const BatchForm form = FormOf(table);
  if (sample.window != form.window) {
    throw InvalidArgument(fmt::format(
        "replay.sample: table '{}' has {}, but reader '{}' expects {}",
        sample.table, ToString(form), request.peer_name,
        ToString(BatchForm{.window = sample.window})));
  }
  PendingBatch pending{
      request.peer_id,
      std::string(request.peer_name),
      sample.count,
      clock_->Now() + std::chrono::milliseconds(sample.wait_ms),
      {},
      {},
      {},
      responder};
  if (sample.kept && sample.kept->token == frames_token_) {
    pending.kept = *sample.kept;
  }
  if (sample.place && options_.shares_memory) {
    pending.target = memories_.TargetAt(request.peer_id, *sample.place);
  }
  if (pending.target) {
    pending.target->Check(sample.count, shard_->config().shape, form);
  }
  auto& queue = pending_batches_[static_cast<size_t>(table)];
  queue.push_back(std::move(pending));
  Pump();
  if (is_closed_ || sample.wait_ms == 0) EndLate(clock_->Now());
}

void Service::HandleFrames(Request& request, Responder responder) {
  const auto wanted = rpc::DecodeMessage<FramesRequest>(request.payload);
  if (shard_->config().shape.frame_bytes == 0) {
    throw InvalidArgument("replay.frames: the steps have no frames");
  }
  std::optional<uint64_t> after;
  if (wanted.token == frames_token_) after = wanted.after_serial;
  const Shard::ChunkRange range = shard_->Chunks(
      after, wanted.room_frames, kMaxBlocksPerReply,
      std::min<size_t>(wanted.max_bytes, options_.max_part_bytes));
  responder.Reply(range.ToReply(frames_token_).Encode());
}

void Service::HandleUpdate(Request& request, Responder responder) {
  const UpdateRequest update = UpdateRequest::Decode(request.payload);
  const int64_t num_updated = shard_->UpdatePriorities(
      TableOf("replay.update", update.table), update.updates);
  responder.Reply(
      rpc::EncodeMessage(UpdateReply{static_cast<uint32_t>(num_updated)}));
  Pump();
}

std::shared_ptr<const ReaderBacklog::Share> Service::BacklogOf(
    int64_t table, const PendingBatch& pending) {
  // what is written to shared memory does not wait in this process
  if (pending.target) return nullptr;
  const RowBytes row = FormOf(table).BytesOf(shard_->config().shape);
  return backlog_.Add(
      pending.peer,
      static_cast<int64_t>(pending.batch.items.size()) * row.total());
}

void Service::Answer(int64_t table, PendingBatch& pending, BatchState state) {
  const ShardConfig& config = shard_->config();
  ++(state == BatchState::kFull ? counts_.batches : counts_.partial_batches);
  if (pending.target) ++counts_.memory_batches;
  const auto num_items = static_cast<int64_t>(pending.batch.items.size());
  const auto share = BacklogOf(table, pending);
  EncodeJob job{std::move(pending.batch),
                state,
                config.shape,
                FormOf(table),
                options_.max_part_bytes,
                std::move(pending.target),
                pending.kept};
  const Responder responder = pending.responder;
  if (encoder_ == nullptr) {
    try {
      rpc::Message message = Encode(job);
      KeepUntilSent(share, &message);
      Answer(responder, num_items, std::move(message), {});
    } catch (const InvalidArgument& e) {
      Answer(responder, num_items, {}, e.what());
    }
    return;
  }
  // a posted function must be copyable, which a message is not
  encoder_->Start(std::move(job), [this, responder, num_items, share](
                                      rpc::Message message, std::string error) {
    KeepUntilSent(share, &message);
    auto shared = std::make_shared<rpc::Message>(std::move(message));
    server_->Post(
        [this, responder, num_items, shared, error = std::move(error)] {
          Answer(responder, num_items, std::move(*shared), error);
        });
  });
}

void Service::Answer(const Responder& responder, int64_t num_items,
                     rpc::Message message, std::string_view error) {
  if (error.empty()) {
    responder.Reply(std::move(message));
    return;
  }
  counts_.undelivered_items += num_items;
  responder.ReplyError(rpc::ErrorCode::kInvalidArgument, error);
}

// --- waiting requests ---

void Service::Pump() {
  // inserts may admit samples, and samples inserts
  do {
    PumpWriters();
  } while (PumpBatches());
}

bool Service::PumpBatches() {
  bool is_any_drawn = false;
  for (size_t t = 0; t < pending_batches_.size(); ++t) {
    const auto table = static_cast<int64_t>(t);
    auto& queue = pending_batches_[t];
    for (auto first = queue.begin(); first != queue.end();) {
      if (!first->target && !backlog_.HasRoom(first->peer)) {
        ++first;
        continue;
      }
      const int64_t missing =
          first->count - static_cast<int64_t>(first->batch.items.size());
      const int64_t drawn =
          shard_->TrySample(table, missing, first->who, &first->batch);
      is_any_drawn |= drawn > 0;
      if (drawn < missing) break;
      Answer(table, *first, BatchState::kFull);
      first = queue.erase(first);
    }
  }
  return is_any_drawn;
}

void Service::PumpWriters() {
  const size_t num_waiting = waiting_writers_.size();
  std::erase_if(waiting_writers_, [&](uint64_t id) {
    if (shard_->Resume(id) != InsertResult::kInserted) return false;
    writers_[id].is_waiting = false;
    writers_[id].unadmitted = 0;
    return true;
  });
  if (waiting_writers_.size() == num_waiting) return;
  std::erase_if(pending_acks_, [&](PendingAck& pending) {
    const Writer& writer = writers_[pending.writer];
    if (writer.is_waiting) return false;
    if (pending.ack.state == InsertState::kWaiting) {
      pending.ack.state = InsertState::kTaken;
    }
    pending.ack.credits = CreditsOf(writer);
    Answer(pending);
    return true;
  });
}

void Service::EndLate(Clock::TimePoint now) {
  std::erase_if(pending_acks_, [&](const PendingAck& pending) {
    if (pending.deadline > now && !is_closed_) return false;
    Answer(pending);
    return true;
  });
  const BatchState state =
      is_closed_ ? BatchState::kClosed : BatchState::kTimeout;
  for (size_t t = 0; t < pending_batches_.size(); ++t) {
    std::erase_if(pending_batches_[t], [&](PendingBatch& pending) {
      if (pending.deadline > now && !is_closed_) return false;
      // one behind another, or after the end, was never tried
      pending.batch.total_steps = shard_->num_steps();
      Answer(static_cast<int64_t>(t), pending, state);
      return true;
    });
  }
}

void Service::HandleTick() {
  const Clock::TimePoint now = clock_->Now();
  ForgetAbsentWriters();
  backlog_.ForgetIdle();
  Pump();
  EndLate(now);
  watch_.Update(*shard_, now);
  memories_.ForgetWithdrawn();
}

void Service::Close() {
  is_closed_ = true;
  shard_->Close();
  EndLate(clock_->Now());
}

}  // namespace replicant::replay
