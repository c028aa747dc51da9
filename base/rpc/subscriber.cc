#include "base/rpc/subscriber.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <span>
#include <utility>

#include "base/rpc/wire.h"

namespace replicant::rpc {
namespace {

// Messages taken in one call, so that a flood of them cannot hold it up.
constexpr int kValuesPerTurn = 256;

SubscriberOptions Complete(SubscriberOptions options) {
  // topic, header, description and payload
  options.limits.max_parts += 1;
  options.socket.max_parts = static_cast<int>(options.limits.max_parts) + 2;
  return options;
}

}  // namespace

Subscriber::Subscriber(ZmqContext& context, Protocol protocol,
                       SubscriberOptions options)
    : protocol_(std::move(protocol)),
      options_(Complete(std::move(options))),
      socket_(context, SocketType::kSub, options_.socket),
      monitor_(context, socket_) {}

void Subscriber::Connect(const std::string& endpoint) {
  endpoint_ = endpoint;
  socket_.Connect(endpoint);
}

void Subscriber::Subscribe(std::string_view topic) {
  socket_.Subscribe(std::string(topic) + kTopicEnd);
}

ReceiveResult Subscriber::Process(Clock::Duration timeout) {
  const Clock::TimePoint end = Clock::Real().Now() + timeout;
  HandleConnectionEvents();
  bool has_newer = false;
  for (int i = 0; i < kValuesPerTurn; ++i) {
    // after a newer value, only messages that are already here are taken
    const Clock::Duration wait =
        has_newer ? Clock::Duration(0) : end - Clock::Real().Now();
    Message message;
    switch (socket_.Receive(&message, wait)) {
      case ReceiveResult::kOk:
        has_newer |= HandleMessage(std::move(message));
        break;
      case ReceiveResult::kTooManyParts:
        ++metrics_.malformed;
        break;
      case ReceiveResult::kTimeout:
        return has_newer ? ReceiveResult::kOk : ReceiveResult::kTimeout;
      case ReceiveResult::kClosed:
        return ReceiveResult::kClosed;
    }
  }
  return has_newer ? ReceiveResult::kOk : ReceiveResult::kTimeout;
}

void Subscriber::HandleConnectionEvents() {
  using Kind = ConnectionEvent::Kind;
  while (const auto event = monitor_.Next()) {
    if (event->kind == Kind::kRefused) {
      throw CommError(fmt::format("connect {}: {}", endpoint_, event->text));
    }
    if (event->kind == Kind::kHandshakeFailed) {
      handshake_failures_.Note("connect " + endpoint_, event->text);
    }
  }
}

bool Subscriber::HandleMessage(Message message) {
  std::string topic(message[0].text());
  Publication value;
  try {
    Envelope envelope = Decode(std::span(message).subspan(1), options_.limits);
    if (topic.find(kTopicEnd) + 1 != topic.size() ||
        envelope.header.kind != kPublicationKind ||
        envelope.header.schema_hash != protocol_.schema_hash ||
        !envelope.header.has(kPayloadCrc) || envelope.payload.empty()) {
      throw MalformedMessage(fmt::format(
          "kind {:#x}, schema {:#018x}; expected a publication of {}",
          envelope.header.kind, envelope.header.schema_hash,
          protocol_.ToString()));
    }
    value.session_id = envelope.header.session_id;
    value.sequence = envelope.header.request_id;
    WireReader about("publication", envelope.payload[0].bytes());
    value.version = about.Read<uint64_t>("version");
    value.published_unix_nanos = about.Read<int64_t>("time");
    about.Finish();
    envelope.payload.erase(envelope.payload.begin());
    value.payload = std::move(envelope.payload);
  } catch (const CommError& e) {
    ++metrics_.malformed;
    spdlog::warn("subscriber: bad message: {}", e.what());
    return false;
  }
  topic.pop_back();
  value.received_at = options_.clock->Now();

  Publication& old = newest_[topic];
  if (!IsNewer(value, old)) {
    ++metrics_.duplicates;
    return false;
  }
  ++metrics_.received;
  old = std::move(value);
  return true;
}

bool Subscriber::IsNewer(const Publication& value, const Publication& old) {
  // a first value, or one after a restart, has no predecessor that was missed
  if (old.sequence == 0) return value.sequence > 0;
  if (value.session_id != old.session_id) {
    ++metrics_.session_changes;
    return value.sequence > 0;
  }
  if (value.sequence <= old.sequence) return false;
  metrics_.missed += value.sequence - old.sequence - 1;
  return true;
}

Publication* Subscriber::Newest(std::string_view topic) {
  const auto found = newest_.find(topic);
  if (found == newest_.end() || found->second.sequence == 0) return nullptr;
  return &found->second;
}

}  // namespace replicant::rpc
