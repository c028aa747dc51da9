#include "base/rpc/server.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <exception>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/rpc/fields.h"
#include "base/rpc/wire.h"

namespace replicant::rpc {
namespace {

// Maximum messages handled in a row before posted work and the tick run.
constexpr int kRequestsPerTurn = 256;
// A tick this late means that the loop, or the process, was stopped.
constexpr auto kStandstill = std::chrono::seconds(1);

ServerOptions Complete(ServerOptions options) {
  if (options.session_id == 0) options.session_id = RandomId();
  // the address, the header and the payload
  options.socket.max_parts = static_cast<int>(options.limits.max_parts) + 2;
  return options;
}

}  // namespace

bool Responder::Reply(Message payload, bool has_crc) const {
  return server_->Answer(token_, has_crc ? uint32_t{kPayloadCrc} : 0,
                         std::move(payload));
}

bool Responder::ReplyError(ErrorCode code, std::string_view text) const {
  return server_->AnswerError(token_, code, text);
}

void Responder::SetDeadline(Clock::TimePoint deadline) const {
  const auto found = server_->unanswered_.find(token_);
  if (found != server_->unanswered_.end()) found->second.deadline = deadline;
}

Server::Server(ZmqContext& context, Protocol protocol, ServerOptions options)
    : protocol_(std::move(protocol)),
      options_(Complete(std::move(options))),
      socket_(context, SocketType::kRouter, options_.socket),
      monitor_(context, socket_, SocketSide::kBinds),
      peers_(options_.max_peers) {}

void Server::Handle(uint16_t kind, Handler handler, Answers answers) {
  REPLICANT_CHECK(kind >= 1 && kind < kFirstReservedKind, "kind {:#x}", kind);
  const bool is_new =
      handlers_.emplace(kind, KindHandler{std::move(handler), answers}).second;
  REPLICANT_CHECK(is_new, "a second handler of kind {}", kind);
}

void Server::OnTick(std::function<void()> callback) {
  on_tick_ = std::move(callback);
}

void Server::OnPeerExpired(std::function<void(const Peer&)> callback) {
  on_peer_expired_ = std::move(callback);
}

void Server::Probe(uint64_t peer_id) {
  const Peer* peer = peers_.Find(peer_id);
  if (peer == nullptr) return;
  SendReply({.address = Frame::Copy(std::string_view(peer->address)),
             .kind = kHeartbeatKind,
             .sender_id = peer_id},
            0, {});
}

void Server::OnPeerLost(std::function<void(const Peer&)> callback) {
  on_peer_lost_ = std::move(callback);
}

void Server::OnEnd(std::function<void()> callback) {
  on_end_ = std::move(callback);
}

std::string Server::Bind(const std::string& endpoint) {
  std::string bound = socket_.Bind(endpoint);
  // Run() may be called from another thread
  socket_.DetachFromThread();
  monitor_.socket().DetachFromThread();
  return bound;
}

void Server::Run() {
  RunLoop();
  if (on_end_) Guard("end", on_end_);
  while (!unanswered_.empty()) {
    AnswerError(unanswered_.begin()->first, ErrorCode::kShuttingDown,
                "the service is about to end");
  }
  PublishMetrics();
}

void Server::RunLoop() {
  std::array<PollItem, 3> items{};
  items[0].socket = &socket_;
  items[1].fd = wake_queue_.fd();
  items[2].socket = &monitor_.socket();
  next_tick_ = Now() + options_.tick_interval;
  complaints_since_ = Now();
  last_tick_ = Clock::Real().Now();
  while (!is_stop_requested_) {
    // a jump of the clock takes effect within one interval of real time
    const Clock::Duration wait =
        std::min(next_tick_ - Now(), options_.tick_interval);
    if (Poll(items, wait) == PollResult::kClosed) return;
    if (items[1].can_receive) RunPosted();
    if (items[2].can_receive) LogHandshakes();
    ReceiveSome();
    if (Now() >= next_tick_) RunTick();
    PublishMetrics();
  }
}

void Server::LogHandshakes() {
  while (const auto event = monitor_.Next()) {
    const bool is_abandoned = event->kind == ConnectionEvent::Kind::kAbandoned;
    if (is_abandoned && !options_.names_abandoned_handshakes) continue;
    handshake_failures_.Note(protocol_.name + " server", event->text);
  }
}

void Server::Stop() {
  is_stop_requested_ = true;
  wake_queue_.Wake();
}

void Server::Post(std::function<void()> work) {
  wake_queue_.Post(std::move(work));
}

void Server::Guard(const char* what, const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& e) {
    ++counters_.handler_errors;
    spdlog::error("{} server: {}: {}", protocol_.name, what, e.what());
  }
}

void Server::RunPosted() {
  for (const WakeQueue::Work& work : wake_queue_.TakeAll()) {
    Guard("posted work", work);
  }
}

void Server::RunTick() {
  const Clock::TimePoint now = Now();
  next_tick_ = now + options_.tick_interval;
  // while this process was stopped it could hear no peer
  const Clock::TimePoint tick = Clock::Real().Now();
  const Clock::Duration elapsed = tick - std::exchange(last_tick_, tick);
  if (elapsed > options_.tick_interval + kStandstill &&
      options_.clock == &Clock::Real()) {
    peers_.Postpone(elapsed, now);
  }

  std::vector<uint64_t> overdue;
  for (const auto& [token, request] : unanswered_) {
    if (request.deadline <= now) overdue.push_back(token);
  }
  for (const uint64_t token : overdue) {
    ++counters_.deadlines_missed;
    AnswerError(token, ErrorCode::kDeadline,
                "the service had no answer in time");
  }

  for (const Peer& peer : peers_.Expire(now - options_.peer_timeout)) {
    ++counters_.peers_expired;
    // only the callback knows whether that is a loss: an orderly end is silent
    // as well
    spdlog::debug("{} server: no message from {} for {} ms", protocol_.name,
                  peer.name,
                  std::chrono::duration_cast<std::chrono::milliseconds>(
                      now - peer.last_seen)
                      .count());
    ForgetUnanswered(peer.id, "");
    if (on_peer_expired_) {
      Guard("peer expiry", [&] { on_peer_expired_(peer); });
    }
  }
  if (on_tick_) Guard("tick", on_tick_);
}

void Server::ReceiveSome() {
  for (int i = 0; i < kRequestsPerTurn; ++i) {
    Message message;
    const ReceiveResult result = socket_.Receive(&message, Clock::Duration(0));
    if (result == ReceiveResult::kTimeout || result == ReceiveResult::kClosed) {
      return;
    }
    ++counters_.messages_received;
    counters_.bytes_received += SizeBytes(message);
    if (result == ReceiveResult::kTooManyParts) {
      ++counters_.malformed;
      Complain({std::move(message[0])}, ErrorCode::kMalformed,
               fmt::format("more than {} parts", message.size() - 1));
      continue;
    }
    HandleMessage(std::move(message));
  }
}

void Server::HandleMessage(Message message) {
  // the first part is the address that the socket gave the sender
  Frame address = std::move(message[0]);
  Envelope envelope;
  try {
    envelope = Decode(std::span(message).subspan(1), options_.limits);
  } catch (const VersionMismatch& e) {
    ++counters_.mismatched;
    Complain({std::move(address)}, ErrorCode::kVersionMismatch, e.what());
    return;
  } catch (const MalformedMessage& e) {
    ++counters_.malformed;
    Complain({std::move(address)}, ErrorCode::kMalformed, e.what());
    return;
  }
  HandleEnvelope(std::move(address), std::move(envelope));
}

void Server::HandleEnvelope(Frame address, Envelope envelope) {
  const Header& header = envelope.header;
  ReplyTo reply_to{std::move(address), header.kind, header.request_id,
                   header.sender_id};
  if (header.has(kReply) || header.sender_id == 0) {
    ++counters_.malformed;
    Complain(std::move(reply_to), ErrorCode::kMalformed,
             "a server takes requests with a sender id only");
    return;
  }
  if (header.kind == kHelloKind) {
    HandleHello(std::move(reply_to), envelope);
    return;
  }
  if (header.schema_hash != protocol_.schema_hash) {
    ++counters_.mismatched;
    Complain(std::move(reply_to), ErrorCode::kSchemaMismatch,
             fmt::format("message of schema {:#018x}; this server speaks {}",
                         header.schema_hash, protocol_.ToString()));
    return;
  }
  const Peer* peer =
      header.session_id == options_.session_id
          ? peers_.Touch(header.sender_id, reply_to.address.text(), Now())
          : nullptr;
  if (peer == nullptr) {
    ++counters_.unknown_session;
    SendError(std::move(reply_to), ErrorCode::kUnknownSession, "hello again");
    return;
  }
  if (header.kind == kHeartbeatKind) {
    if (!header.has(kOneWay)) SendReply(std::move(reply_to), 0, {});
    return;
  }
  HandleRequest(std::move(reply_to), std::move(envelope), *peer);
}

void Server::HandleHello(ReplyTo reply_to, const Envelope& envelope) {
  HelloBody hello;
  try {
    hello = DecodeMessage<HelloBody>(envelope.payload);
  } catch (const MalformedMessage& e) {
    ++counters_.malformed;
    Complain(std::move(reply_to), ErrorCode::kMalformed, e.what());
    return;
  }
  if (envelope.header.schema_hash != protocol_.schema_hash) {
    ++counters_.mismatched;
    const Protocol theirs{hello.protocol_name, hello.protocol_version,
                          envelope.header.schema_hash};
    Complain(std::move(reply_to), ErrorCode::kSchemaMismatch,
             fmt::format("the server speaks {}, the client '{}' {}; hint: run "
                         "the same build on both sides",
                         protocol_.ToString(), hello.sender_name,
                         theirs.ToString()));
    return;
  }
  if (!peers_.Hello(reply_to.sender_id, hello.sender_name,
                    reply_to.address.text(), Now())) {
    SendError(std::move(reply_to), ErrorCode::kBusy,
              fmt::format("the server has reached its limit of {} clients",
                          options_.max_peers));
    return;
  }
  const HelloBody answer{protocol_.name, protocol_.version, ""};
  SendReply(std::move(reply_to), 0, EncodeMessage(answer));
}

void Server::HandleRequest(ReplyTo reply_to, Envelope envelope,
                           const Peer& peer) {
  const bool is_one_way = envelope.header.has(kOneWay);
  const auto refuse = [&](ErrorCode code, std::string_view why) {
    if (is_one_way) {
      ++counters_.errors_withheld;
    } else {
      SendError(std::move(reply_to), code, why);
    }
  };
  const uint16_t kind = reply_to.kind;
  const auto handler = handlers_.find(kind);
  if (handler == handlers_.end()) {
    refuse(ErrorCode::kUnknownKind,
           fmt::format("no handler for messages of kind {}", kind));
    return;
  }
  if (const auto of_peer = unanswered_of_peer_.find(peer.id);
      of_peer != unanswered_of_peer_.end() && !is_one_way) {
    const auto first = of_peer->second.find(envelope.header.request_id);
    if (first != of_peer->second.end()) {
      ReplyTo& earlier = unanswered_.at(first->second).reply_to;
      if (earlier.kind != kind) {
        refuse(ErrorCode::kInvalidArgument,
               fmt::format("request {} of kind {} still waits for its answer",
                           envelope.header.request_id, earlier.kind));
        return;
      }
      // sent again: the answer goes to the client's current address
      ++counters_.repeated;
      earlier = std::move(reply_to);
      return;
    }
  }
  if (const std::string why = Busy(peer.id);
      !why.empty() && handler->second.answers == Answers::kLater) {
    refuse(ErrorCode::kBusy, why);
    return;
  }
  Request request;
  request.kind = kind;
  request.request_id = envelope.header.request_id;
  request.peer_id = peer.id;
  request.peer_name = peer.name;
  request.is_one_way = is_one_way;
  request.payload = std::move(envelope.payload);

  const uint64_t token = ++last_token_;
  // a one-way message leaves nothing to answer, and may have any id
  if (!is_one_way) unanswered_of_peer_[peer.id][request.request_id] = token;
  unanswered_.emplace(token, Unanswered{std::move(reply_to), request.is_one_way,
                                        Now() + options_.reply_timeout});
  try {
    handler->second.handle(request, Responder(this, token));
  } catch (const MalformedMessage& e) {
    ++counters_.malformed;
    AnswerError(token, ErrorCode::kMalformed, e.what());
  } catch (const InvalidArgument& e) {
    ++counters_.handler_errors;
    AnswerError(token, ErrorCode::kInvalidArgument, e.what());
  } catch (const std::exception& e) {
    ++counters_.handler_errors;
    spdlog::error("{} server: kind {} of {}: {}", protocol_.name, request.kind,
                  request.peer_name, e.what());
    AnswerError(token, ErrorCode::kFailed, e.what());
  }
  // no answer follows, so no state is kept
  if (request.is_one_way) TakeUnanswered(token);
}

std::string Server::Busy(uint64_t peer_id) const {
  if (unanswered_.size() >= options_.max_unanswered) {
    return fmt::format("{} requests are waiting", unanswered_.size());
  }
  const auto of_peer = unanswered_of_peer_.find(peer_id);
  if (of_peer != unanswered_of_peer_.end() &&
      of_peer->second.size() >= options_.max_unanswered_of_peer) {
    return fmt::format("{} requests of this client are waiting",
                       of_peer->second.size());
  }
  return "";
}

void Server::ForgetUnanswered(uint64_t peer_id, std::string_view address) {
  const auto of_peer = unanswered_of_peer_.find(peer_id);
  if (of_peer == unanswered_of_peer_.end()) return;
  std::vector<uint64_t> tokens;
  for (const auto& [request_id, token] : of_peer->second) {
    if (address.empty() ||
        unanswered_.at(token).reply_to.address.text() == address) {
      tokens.push_back(token);
    }
  }
  for (const uint64_t token : tokens) TakeUnanswered(token);
}

std::optional<Server::Unanswered> Server::TakeUnanswered(uint64_t token) {
  auto taken = unanswered_.extract(token);
  if (taken.empty()) return std::nullopt;
  Unanswered request = std::move(taken.mapped());
  if (request.is_one_way) return request;
  const auto of_peer = unanswered_of_peer_.find(request.reply_to.sender_id);
  of_peer->second.erase(request.reply_to.request_id);
  if (of_peer->second.empty()) unanswered_of_peer_.erase(of_peer);
  return request;
}

bool Server::Answer(uint64_t token, uint32_t flags, Message payload) {
  std::optional<Unanswered> request = TakeUnanswered(token);
  if (!request) return false;
  if (request->is_one_way) return true;
  SendReply(std::move(request->reply_to), flags, std::move(payload));
  return true;
}

bool Server::AnswerError(uint64_t token, ErrorCode code,
                         std::string_view text) {
  const ErrorBody body{code, std::string(text)};
  return Answer(token, kError, EncodeMessage(body));
}

void Server::Complain(ReplyTo reply_to, ErrorCode code, std::string_view text) {
  // log only answered complaints: a hostile peer must not fill the disk
  const Clock::TimePoint now = Now();
  if (now - complaints_since_ >= std::chrono::seconds(1)) {
    complaints_since_ = now;
    num_complaints_ = 0;
  }
  if (num_complaints_ >= options_.max_error_replies_per_s) {
    ++counters_.errors_withheld;
    return;
  }
  ++num_complaints_;
  spdlog::warn("{} server: bad message: {}", protocol_.name, text);
  SendError(std::move(reply_to), code, text);
}

void Server::SendError(ReplyTo reply_to, ErrorCode code,
                       std::string_view text) {
  const ErrorBody body{code, std::string(text)};
  SendReply(std::move(reply_to), kError, EncodeMessage(body));
}

void Server::SendReply(ReplyTo reply_to, uint32_t flags, Message payload) {
  Header header;
  header.kind = reply_to.kind;
  header.flags = flags | kReply;
  header.session_id = options_.session_id;
  header.schema_hash = protocol_.schema_hash;
  header.request_id = reply_to.request_id;
  header.sender_id = reply_to.sender_id;
  Message envelope = Encode(header, std::move(payload));
  const size_t size_bytes = SizeBytes(envelope);

  const std::string address(reply_to.address.text());
  Message message;
  message.reserve(envelope.size() + 1);
  message.push_back(std::move(reply_to.address));
  for (Frame& frame : envelope) message.push_back(std::move(frame));
  switch (socket_.Send(message, Clock::Duration(0))) {
    case SendResult::kOk:
      ++counters_.messages_sent;
      counters_.bytes_sent += size_bytes;
      if ((flags & kError) != 0) ++counters_.errors_sent;
      break;
    case SendResult::kTimeout:
      ++counters_.dropped_full;
      break;
    case SendResult::kUnroutable:
      ++counters_.dropped_unroutable;
      ForgetUnanswered(reply_to.sender_id, address);
      if (const Peer* peer = peers_.Find(reply_to.sender_id);
          peer != nullptr && on_peer_lost_) {
        Guard("peer loss", [&] { on_peer_lost_(*peer); });
      }
      break;
    case SendResult::kClosed:
      break;
  }
}

ServerMetrics Server::metrics() const {
  MutexLock lock(metrics_mutex_);
  return metrics_;
}

void Server::PublishMetrics() {
  counters_.peers = peers_.size();
  counters_.unanswered = unanswered_.size();
  MutexLock lock(metrics_mutex_);
  metrics_ = counters_;
}

}  // namespace replicant::rpc
