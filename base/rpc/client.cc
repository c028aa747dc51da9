#include "base/rpc/client.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/rpc/fields.h"
#include "base/rpc/wire.h"

namespace replicant::rpc {
namespace {

constexpr Clock::TimePoint kNever{Clock::Duration::max()};
// Maximum messages handled in a row before timers and deadlines run.
constexpr int kRepliesPerTurn = 256;

ClientOptions Complete(ClientOptions options) {
  if (options.sender_id == 0) options.sender_id = RandomId();
  // the header and the payload
  options.socket.max_parts = static_cast<int>(options.limits.max_parts) + 1;
  // a message for an absent server waits in this client, which has deadlines
  options.socket.is_immediate = true;
  return options;
}

CallReply MakeReply(CallResult result) {
  CallReply reply;
  reply.result = result;
  return reply;
}

}  // namespace

Client::Client(ZmqContext& context, Protocol protocol, ClientOptions options)
    : protocol_(std::move(protocol)),
      options_(Complete(std::move(options))),
      socket_(context, SocketType::kDealer, options_.socket),
      monitor_(context, socket_),
      next_request_timer_(kNever),
      next_hello_(kNever) {}

void Client::DetachFromThread() {
  socket_.DetachFromThread();
  monitor_.socket().DetachFromThread();
}

void Client::Connect(const std::string& endpoint) {
  if (endpoint == endpoint_) return;
  socket_.Connect(endpoint);
  if (!endpoint_.empty()) {
    socket_.Disconnect(endpoint_);
    HandleDisconnect();
  }
  endpoint_ = endpoint;
  handshake_failure_.clear();
  next_hello_ = Now();
}

CallResult Client::AwaitSession(Clock::Duration timeout) {
  REPLICANT_CHECK(!endpoint_.empty(), "call Connect() first");
  const Clock::TimePoint end = Now() + timeout;
  while (session_id_ == 0 && !is_closed_ && Now() < end) Step(end);
  if (is_closed_) return CallResult::kClosed;
  if (session_id_ != 0) return CallResult::kOk;
  if (handshake_failure_.empty()) return CallResult::kTimeout;
  throw CommError(fmt::format("connect {}: {}", endpoint_, handshake_failure_));
}

void Client::CheckPayload(const Message& payload) const {
  rpc::CheckPayload("message", payload, options_.limits,
                    options_.socket.max_part_bytes);
}

std::optional<Client::RequestId> Client::Start(uint16_t kind, Message payload,
                                               const CallOptions& options) {
  CheckPayload(payload);
  if (pending_.size() >= options_.max_in_flight) return std::nullopt;
  const RequestId id = ++last_request_id_;
  Pending& pending = pending_[id];
  pending.kind = kind;
  pending.payload = std::move(payload);
  pending.is_idempotent = options.is_idempotent;
  pending.has_crc = options.has_crc;
  pending.attempt_timeout = options.attempt_timeout.count() > 0
                                ? options.attempt_timeout
                                : options_.attempt_timeout;
  pending.deadline = Now() + options.timeout;
  next_request_timer_ = std::min(next_request_timer_, pending.deadline);
  ++metrics_.requests;
  unsent_.insert(id);
  SendUnsent();
  return id;
}

CallReply Client::Wait(RequestId id) {
  const auto found = pending_.find(id);
  REPLICANT_CHECK(found != pending_.end(), "request {} is not under way", id);
  while (!found->second.is_done) {
    if (is_closed_) return MakeReply(CallResult::kClosed);
    Step(found->second.deadline);
  }
  CallReply reply = std::move(found->second.reply);
  Forget(id);
  return reply;
}

std::optional<Client::RequestId> Client::WaitAny(Clock::Duration timeout) {
  const Clock::TimePoint end = Now() + timeout;
  while (true) {
    if (!done_.empty()) return done_.extract(done_.begin()).value();
    if (pending_.empty() || is_closed_ || Now() >= end) return std::nullopt;
    Step(end);
  }
}

CallReply Client::Call(uint16_t kind, Message payload,
                       const CallOptions& options) {
  const std::optional<RequestId> id = Start(kind, std::move(payload), options);
  if (!id) {
    CallReply reply = MakeReply(CallResult::kError);
    reply.error = ErrorCode::kBusy;
    reply.error_text =
        fmt::format("{} requests are already in flight", pending_.size());
    return reply;
  }
  try {
    return Wait(*id);
  } catch (...) {
    Forget(*id);
    throw;
  }
}

SendResult Client::SendOneWay(uint16_t kind, Message payload,
                              Clock::Duration timeout) {
  CheckPayload(payload);
  const Clock::TimePoint end = Now() + timeout;
  while (true) {
    if (is_closed_) return SendResult::kClosed;
    // earlier requests go first
    if (session_id_ != 0 && unsent_.empty() && !is_send_blocked_) {
      const SendResult result =
          SendMessage(kind, kOneWay, ++last_request_id_, payload);
      if (result == SendResult::kOk) return result;
    }
    if (Now() >= end) return SendResult::kTimeout;
    Step(end);
  }
}

void Client::Process(Clock::Duration timeout) {
  const Clock::TimePoint end = Now() + timeout;
  const uint64_t received = num_received_;
  do {
    Step(end);
  } while (num_received_ == received && !is_closed_ && Now() < end);
}

void Client::AwaitAny(std::span<Client* const> clients, WakeEvent& wake,
                      Clock::Duration timeout) {
  Clock::TimePoint end = Now() + timeout;
  std::vector<PollItem> items(1);
  items[0].fd = wake.fd();
  for (Client* const client : clients) {
    // replies that are already here
    if (!client->done_.empty()) return;
    end = client->NextTimer(end);
    items.push_back(
        {.socket = &client->socket_, .wants_send = client->is_send_blocked_});
    items.push_back({.socket = &client->monitor_.socket()});
  }
  // the clients' own calls report a context that was shut down
  static_cast<void>(Poll(items, end - Now()));
  if (items[0].can_receive) wake.Clear();
}

void Client::Step(Clock::TimePoint end) {
  RunTimers();
  SendUnsent();
  std::array<PollItem, 2> items{};
  items[0].socket = &socket_;
  items[0].wants_send = is_send_blocked_;
  items[1].socket = &monitor_.socket();
  if (Poll(items, NextTimer(end) - Now()) == PollResult::kClosed) {
    Close();
    return;
  }
  if (is_send_blocked_ && items[0].can_send) {
    is_send_blocked_ = false;
    if (session_id_ == 0 && !is_hello_sent_) next_hello_ = Now();
  }
  // replies that came before a disconnection are still valid
  ReceiveAll();
  HandleConnectionEvents();
  CheckSilence();
}

Clock::TimePoint Client::NextTimer(Clock::TimePoint end) const {
  return std::min({end, next_request_timer_,
                   session_id_ == 0 ? next_hello_ : next_heartbeat_});
}

void Client::RunTimers() {
  const Clock::TimePoint now = Now();
  if (now >= next_request_timer_) RunRequestTimers(now);
  if (session_id_ == 0 && now >= next_hello_) SendHello(now);
  if (session_id_ != 0 && now >= next_heartbeat_) {
    next_heartbeat_ = now + options_.heartbeat_interval;
    Message empty;
    // a full queue counts as silence, like a missing answer
    static_cast<void>(SendMessage(kHeartbeatKind, 0, 0, empty));
    if (!heartbeat_sent_at_) heartbeat_sent_at_ = now;
  }
}

void Client::RunRequestTimers(Clock::TimePoint now) {
  next_request_timer_ = kNever;
  for (auto& [id, pending] : pending_) {
    if (pending.is_done) continue;
    if (now >= pending.deadline) {
      Finish(id, pending, MakeReply(CallResult::kTimeout));
      continue;
    }
    next_request_timer_ = std::min(next_request_timer_, pending.deadline);
    if (!pending.is_sent || !pending.is_idempotent) continue;
    if (now >= pending.retry_at) {
      Resend(id, pending);
    } else {
      next_request_timer_ = std::min(next_request_timer_, pending.retry_at);
    }
  }
}

void Client::SendHello(Clock::TimePoint now) {
  const HelloBody hello{protocol_.name, protocol_.version, options_.name};
  Message payload = EncodeMessage(hello);
  next_hello_ = now + options_.attempt_timeout;
  if (SendMessage(kHelloKind, 0, 0, payload) == SendResult::kOk) {
    is_hello_sent_ = true;
    ++metrics_.hellos;
  }
}

void Client::SendUnsent() {
  while (session_id_ != 0 && !is_send_blocked_ && !unsent_.empty()) {
    const RequestId id = *unsent_.begin();
    Pending& pending = pending_.at(id);
    const uint32_t flags = pending.has_crc ? uint32_t{kPayloadCrc} : 0;
    if (SendMessage(pending.kind, flags, id, pending.payload) !=
        SendResult::kOk) {
      return;
    }
    pending.is_sent = true;
    pending.retry_at = Now() + pending.attempt_timeout;
    if (pending.is_idempotent) {
      next_request_timer_ = std::min(next_request_timer_, pending.retry_at);
    }
    unsent_.erase(id);
  }
}

SendResult Client::SendMessage(uint16_t kind, uint32_t flags,
                               uint64_t request_id, Message& payload) {
  Header header;
  header.kind = kind;
  header.flags = flags;
  header.session_id = session_id_;
  header.schema_hash = protocol_.schema_hash;
  header.request_id = request_id;
  header.sender_id = options_.sender_id;
  Message message = Encode(header, Share(payload));
  const SendResult result = socket_.Send(message, Clock::Duration(0));
  // kUnroutable: the connection broke; its event is on the way
  is_send_blocked_ = result != SendResult::kOk;
  if (result == SendResult::kClosed) Close();
  return result;
}

void Client::ReceiveAll() {
  Message message;
  for (int i = 0; i < kRepliesPerTurn; ++i) {
    switch (socket_.Receive(&message, Clock::Duration(0))) {
      case ReceiveResult::kOk:
        ++num_received_;
        HandleMessage(std::move(message));
        break;
      case ReceiveResult::kTooManyParts:
        ++num_received_;
        ++metrics_.malformed;
        break;
      case ReceiveResult::kClosed:
        Close();
        return;
      case ReceiveResult::kTimeout:
        return;
    }
  }
}

void Client::HandleMessage(Message message) {
  Envelope envelope;
  ErrorBody error;
  try {
    envelope = Decode(message, options_.limits);
    if (envelope.header.has(kError))
      error = DecodeMessage<ErrorBody>(envelope.payload);
  } catch (const VersionMismatch& e) {
    throw CommError(fmt::format("{}: {}", endpoint_, e.what()));
  } catch (const MalformedMessage& e) {
    ++metrics_.malformed;
    spdlog::warn("{}: bad reply: {}", endpoint_, e.what());
    return;
  }
  const Header& header = envelope.header;
  heartbeat_sent_at_.reset();
  if (header.has(kError)) {
    HandleError(header, std::move(error));
    return;
  }
  if (!header.has(kReply) || header.sender_id != options_.sender_id) {
    ++metrics_.malformed;
    return;
  }
  if (header.kind == kHelloKind) {
    HandleHelloReply(header);
    return;
  }
  if (header.kind == kHeartbeatKind) return;

  const auto found = pending_.find(header.request_id);
  if (header.session_id != session_id_ || found == pending_.end() ||
      found->second.is_done || found->second.kind != header.kind) {
    ++metrics_.late_replies;
    return;
  }
  CallReply reply;
  reply.payload = std::move(envelope.payload);
  ++metrics_.replies;
  Finish(header.request_id, found->second, std::move(reply));
}

void Client::HandleHelloReply(const Header& header) {
  if (header.schema_hash != protocol_.schema_hash) {
    throw CommError(fmt::format(
        "{}: the server answered with schema {:#018x}; this client speaks {}",
        endpoint_, header.schema_hash, protocol_.ToString()));
  }
  if (header.session_id == session_id_) return;
  session_id_ = header.session_id;
  next_heartbeat_ = Now() + options_.heartbeat_interval;
  const uint64_t old_session_id = std::exchange(last_session_id_, session_id_);
  // a server that greets a client anew has forgotten its requests
  ResendOrGiveUp();
  if (old_session_id == 0 || old_session_id == session_id_) return;

  ++metrics_.session_changes;
  spdlog::warn("{}: the server was restarted", endpoint_);
  if (options_.on_session_change) {
    options_.on_session_change(old_session_id, session_id_);
  }
}

void Client::HandleError(const Header& header, ErrorBody error) {
  const auto found = pending_.find(header.request_id);
  const bool is_pending = header.sender_id == options_.sender_id &&
                          found != pending_.end() && !found->second.is_done;
  switch (error.code) {
    case ErrorCode::kVersionMismatch:
    case ErrorCode::kSchemaMismatch:
      throw CommError(fmt::format("{}: {}", endpoint_, error.text));
    case ErrorCode::kUnknownSession:
      // the server refused it unread, so even a request that is not idempotent
      // can be sent again
      LoseSession();
      if (is_pending && found->second.is_sent) {
        Resend(header.request_id, found->second);
      }
      return;
    case ErrorCode::kShuttingDown:
      // the timer sends it again, perhaps to the next server
      if (is_pending && found->second.is_idempotent) return;
      break;
    default:
      break;
  }
  if (header.kind == kHelloKind || header.request_id == 0) {
    // the hello is sent again after the attempt timeout
    spdlog::warn("{}: {}: {}", endpoint_, ToString(error.code), error.text);
    return;
  }
  if (!is_pending) {
    ++metrics_.late_replies;
    return;
  }
  CallReply reply = MakeReply(CallResult::kError);
  reply.error = error.code;
  reply.error_text = std::move(error.text);
  ++metrics_.replies;
  Finish(header.request_id, found->second, std::move(reply));
}

void Client::HandleConnectionEvents() {
  while (const auto event = monitor_.Next()) {
    switch (event->kind) {
      case ConnectionEvent::Kind::kConnected:
        handshake_failure_.clear();
        if (session_id_ == 0 && !is_hello_sent_) next_hello_ = Now();
        break;
      case ConnectionEvent::Kind::kDisconnected:
        HandleDisconnect();
        break;
      case ConnectionEvent::Kind::kAbandoned:  // not on this side
      case ConnectionEvent::Kind::kHandshakeFailed:
        handshake_failure_ = event->text;
        handshake_failures_.Note("connect " + endpoint_, event->text);
        break;
      case ConnectionEvent::Kind::kRefused:
        handshake_failure_ = event->text;
        throw CommError(fmt::format("connect {}: {}", endpoint_, event->text));
    }
  }
}

void Client::HandleDisconnect() {
  ++metrics_.disconnects;
  is_hello_sent_ = false;
  heartbeat_sent_at_.reset();
  LoseSession();
  ResendOrGiveUp();
}

void Client::CheckSilence() {
  if (!heartbeat_sent_at_ ||
      Now() - *heartbeat_sent_at_ < options_.server_timeout) {
    return;
  }
  // the transport would wait minutes for a lost host
  spdlog::warn("{}: the server does not answer", endpoint_);
  socket_.Disconnect(endpoint_);
  socket_.Connect(endpoint_);
  HandleDisconnect();
}

void Client::LoseSession() {
  if (session_id_ == 0) return;
  session_id_ = 0;
  is_hello_sent_ = false;
  next_hello_ = Now();
}

void Client::ResendOrGiveUp() {
  for (auto& [id, pending] : pending_) {
    if (!pending.is_sent || pending.is_done) continue;
    if (pending.is_idempotent) {
      Resend(id, pending);
    } else {
      Finish(id, pending, MakeReply(CallResult::kLost));
    }
  }
}

void Client::Resend(RequestId id, Pending& pending) {
  ++metrics_.retries;
  pending.is_sent = false;
  unsent_.insert(id);
}

void Client::Finish(RequestId id, Pending& pending, CallReply reply) {
  pending.is_done = true;
  pending.payload.clear();
  pending.reply = std::move(reply);
  unsent_.erase(id);
  done_.insert(id);
}

void Client::Forget(RequestId id) {
  pending_.erase(id);
  unsent_.erase(id);
  done_.erase(id);
}

void Client::Close() {
  is_closed_ = true;
  session_id_ = 0;
}

}  // namespace replicant::rpc
