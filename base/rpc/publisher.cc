#include "base/rpc/publisher.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "base/error.h"
#include "base/rpc/wire.h"

namespace replicant::rpc {
namespace {

// Messages taken in one call, so that a flood of them cannot hold it up.
constexpr int kSubscriptionsPerTurn = 256;
// Version and time of a value: a part before its payload.
constexpr size_t kAboutBytes = 2 * sizeof(uint64_t);

PublisherOptions Complete(PublisherOptions options) {
  if (options.session_id == 0) options.session_id = RandomId();
  return options;
}

}  // namespace

Publisher::Publisher(ZmqContext& context, Protocol protocol,
                     PublisherOptions options)
    : protocol_(std::move(protocol)),
      options_(Complete(std::move(options))),
      socket_(context, SocketType::kXPub, options_.socket),
      monitor_(context, socket_, SocketSide::kBinds) {}

void Publisher::Publish(std::string_view topic, uint64_t version,
                        Message payload) {
  if (topic.empty() || topic.size() > kMaxTopicBytes ||
      topic.find(kTopicEnd) != std::string_view::npos) {
    throw InvalidArgument(
        fmt::format("Publisher: a topic has 1 to {} bytes and no zero byte; "
                    "got {} bytes",
                    kMaxTopicBytes, topic.size()));
  }
  CheckPayload(topic, payload);
  Value& value = values_[std::string(topic)];
  Header header;
  header.kind = kPublicationKind;
  header.flags = kPayloadCrc;
  header.session_id = options_.session_id;
  header.schema_hash = protocol_.schema_hash;
  header.request_id = ++value.sequence;

  // the first part of the payload describes the rest
  WireWriter about;
  about.Write(version);
  about.Write(options_.clock->UnixNanos());
  payload.insert(payload.begin(), about.Finish());

  value.message.clear();
  value.message.push_back(Frame::Copy(std::string(topic) + kTopicEnd));
  for (Frame& frame : Encode(header, std::move(payload))) {
    value.message.push_back(std::move(frame));
  }
  Send(value);
}

void Publisher::CheckPayload(std::string_view topic,
                             const Message& payload) const {
  EnvelopeLimits limits;
  --limits.max_parts;
  limits.max_payload_bytes -= kAboutBytes;
  rpc::CheckPayload(fmt::format("{} '{}'", protocol_.name, topic), payload,
                    limits, options_.socket.max_part_bytes);
}

void Publisher::Send(Value& value) {
  Message message = Share(value.message);
  // an XPUB drops for a full subscriber; it never waits
  static_cast<void>(socket_.Send(message, Clock::Duration(0)));
}

ReceiveResult Publisher::Process(Clock::Duration timeout) {
  // all that wait first, so that a topic goes out once for many subscribers
  std::set<std::string, std::less<>> topics;
  for (int i = 0; i < kSubscriptionsPerTurn; ++i) {
    Message message;
    const ReceiveResult result =
        socket_.Receive(&message, i == 0 ? timeout : Clock::Duration(0));
    if (result == ReceiveResult::kClosed) return result;
    if (result == ReceiveResult::kTimeout) break;
    // 1 and the topic; 0 is the end of a subscription, anything else is invalid
    const std::string_view text = message[0].text();
    if (text.size() >= 2 && text.front() == 1 && text.back() == kTopicEnd) {
      const std::string_view topic = text.substr(1, text.size() - 2);
      if (values_.contains(topic)) topics.emplace(topic);
    }
  }
  for (const std::string& topic : topics) Send(values_[topic]);
  while (const auto event = monitor_.Next()) {
    handshake_failures_.Note(protocol_.name + " publisher", event->text);
  }
  return topics.empty() ? ReceiveResult::kTimeout : ReceiveResult::kOk;
}

}  // namespace replicant::rpc
