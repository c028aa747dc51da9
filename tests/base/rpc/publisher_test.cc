#include "base/rpc/publisher.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "base/error.h"
#include "base/fs.h"
#include "base/rpc/subscriber.h"
#include "base/thread.h"
#include "tests/support/message_of.h"

namespace replicant::rpc {
namespace {

using replicant::testing::MessageOf;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Clock::Duration kLong = seconds(60);
constexpr Clock::Duration kNoWait{0};

const Protocol& TestProtocol() {
  static const Protocol protocol = Protocol::FromTable("test", 1, "values");
  return protocol;
}

Message Text(const std::string& text) { return MakeMessage(Frame::Copy(text)); }

// Lets the publisher answer subscriptions until the subscriber has `version`.
void PumpUntil(Publisher& publisher, Subscriber& subscriber,
               const std::string& topic, uint64_t version) {
  const Clock::TimePoint end = Clock::Real().Now() + kLong;
  while (Clock::Real().Now() < end) {
    static_cast<void>(publisher.Process(kNoWait));
    static_cast<void>(subscriber.Process(milliseconds(1)));
    const Publication* newest = subscriber.Newest(topic);
    if (newest != nullptr && newest->version == version) return;
  }
  FAIL() << topic << " never came to version " << version;
}

class PublisherTransportTest : public ::testing::TestWithParam<const char*> {};

// PUB loses what is published before a subscription: this must not.
TEST_P(PublisherTransportTest, LateSubscriberGetsTheLastValueAtOnce) {
  const TemporaryFolder folder;
  std::string address = GetParam();
  if (address == "ipc") address = "ipc://" + (folder.path() / "p").string();
  ZmqContext context;
  Publisher publisher(context, TestProtocol());
  const std::string endpoint = publisher.Bind(address);
  publisher.Publish("policy", 10, Text("old"));
  publisher.Publish("policy", 20, Text("new"));

  for (int i = 0; i < 2; ++i) {
    Subscriber subscriber(context, TestProtocol());
    subscriber.Subscribe("policy");
    subscriber.Connect(endpoint);
    EXPECT_EQ(subscriber.Newest("policy"), nullptr);
    PumpUntil(publisher, subscriber, "policy", 20);
    const Publication* newest = subscriber.Newest("policy");
    ASSERT_NE(newest, nullptr);
    EXPECT_EQ(newest->payload.at(0).text(), "new");
    EXPECT_EQ(newest->session_id, publisher.session_id());
    EXPECT_EQ(newest->sequence, 2u);
    EXPECT_EQ(subscriber.metrics().missed, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, PublisherTransportTest,
                         ::testing::Values("tcp://127.0.0.1:*", "ipc",
                                           "inproc://values"));

TEST(PublisherTest, SubscriberKeepsTheNewestAndCountsWhatItMissed) {
  ZmqContext context;
  Publisher publisher(context, TestProtocol());
  Subscriber subscriber(context, TestProtocol());
  publisher.Bind("inproc://values");
  subscriber.Connect("inproc://values");
  subscriber.Subscribe("policy");
  publisher.Publish("policy", 1, Text("1"));
  PumpUntil(publisher, subscriber, "policy", 1);
  // more than both queues hold: the rest is dropped
  for (uint64_t version = 2; version <= 100; ++version) {
    publisher.Publish("policy", version, Text(std::to_string(version)));
  }
  EXPECT_EQ(subscriber.Process(kLong), ReceiveResult::kOk);
  const uint64_t stale = subscriber.Newest("policy")->version;
  EXPECT_LT(stale, 100u);
  // it learns that there is room again
  static_cast<void>(publisher.Process(kNoWait));
  publisher.Publish("policy", 101, Text("101"));
  PumpUntil(publisher, subscriber, "policy", 101);
  EXPECT_EQ(subscriber.metrics().missed, 100 - stale);
  EXPECT_EQ(subscriber.Newest("policy")->payload.at(0).text(), "101");
}

// "a" is a prefix of "ab", which is all that ZeroMQ compares.
TEST(PublisherTest, TopicsAreWholeNames) {
  ZmqContext context;
  Publisher publisher(context, TestProtocol());
  Subscriber subscriber(context, TestProtocol());
  publisher.Bind("inproc://values");
  subscriber.Connect("inproc://values");
  subscriber.Subscribe("a");
  publisher.Publish("ab", 7, {});
  publisher.Publish("a", 8, {});
  PumpUntil(publisher, subscriber, "a", 8);
  EXPECT_EQ(subscriber.Newest("ab"), nullptr);
  EXPECT_EQ(subscriber.metrics().received, 1u);
}

TEST(PublisherTest, BadTopicIsRefused) {
  ZmqContext context;
  Publisher publisher(context, TestProtocol());
  EXPECT_THROW(publisher.Publish("", 1, {}), InvalidArgument);
  EXPECT_THROW(publisher.Publish(std::string(256, 'a'), 1, {}),
               InvalidArgument);
  EXPECT_THROW(publisher.Publish(std::string_view("a\0b", 3), 1, {}),
               InvalidArgument);
}

// A subscriber would drop the connection, and wait for ever.
TEST(PublisherTest, OversizedValueIsRefusedBeforeItIsSent) {
  ZmqContext context;
  Publisher publisher(context, TestProtocol(),
                      {.socket = {.max_part_bytes = 10}});
  publisher.Publish("policy", 1, Text("ten bytes!"));
  EXPECT_EQ(MessageOf<InvalidArgument>(
                [&] { publisher.Publish("policy", 2, Text("eleven byte")); }),
            "test 'policy' of 1 parts, the longest of 11 bytes, 11 bytes in "
            "all; allowed are 1023 parts of 10 bytes, 4294967280 bytes in all");
  // one more part goes with it
  EXPECT_NO_THROW(publisher.Publish("policy", 2, Message(1023)));
  EXPECT_THROW(publisher.Publish("policy", 3, Message(1024)), InvalidArgument);
}

TEST(PublisherTest, AgeAndPublicationTimeAreKnown) {
  FakeClock clock;
  clock.Advance(seconds(100));
  ZmqContext context;
  Publisher publisher(context, TestProtocol(), {.clock = &clock});
  Subscriber subscriber(context, TestProtocol(), {.clock = &clock});
  publisher.Bind("inproc://values");
  subscriber.Connect("inproc://values");
  subscriber.Subscribe("policy");
  publisher.Publish("policy", 1, {});
  clock.Advance(seconds(5));
  PumpUntil(publisher, subscriber, "policy", 1);
  clock.Advance(seconds(2));
  const Publication* newest = subscriber.Newest("policy");
  ASSERT_NE(newest, nullptr);
  EXPECT_EQ(newest->published_unix_nanos, 100'000'000'000);
  EXPECT_EQ(clock.Now() - newest->received_at, seconds(2));
}

// A restarted publisher counts from 1 again: its values are newer all the same.
TEST(PublisherTest, RestartedPublisherIsFollowed) {
  const TemporaryFolder folder;
  const std::string address = "ipc://" + (folder.path() / "p").string();
  ZmqContext context;
  SubscriberOptions options;
  options.socket.reconnect_ms = 1;
  Subscriber subscriber(context, TestProtocol(), options);
  subscriber.Connect(address);
  subscriber.Subscribe("policy");
  for (const uint64_t version : {50u, 3u}) {
    ZmqContext publisher_context;
    Publisher publisher(publisher_context, TestProtocol());
    publisher.Bind(address);
    publisher.Publish("policy", 1, {});
    publisher.Publish("policy", version, {});
    PumpUntil(publisher, subscriber, "policy", version);
  }
  EXPECT_EQ(subscriber.metrics().session_changes, 1u);
  EXPECT_EQ(subscriber.metrics().missed, 0u);
}

// Bytes of a hostile publisher are counted, dropped and never a value.
TEST(PublisherTest, MalformedPublicationsAreCountedAndDropped) {
  ZmqContext context;
  ZmqSocket hostile(context, SocketType::kXPub);
  Subscriber subscriber(context, TestProtocol());
  hostile.Bind("inproc://values");
  subscriber.Connect("inproc://values");
  subscriber.Subscribe("t");
  Message message;
  ASSERT_EQ(hostile.Receive(&message, kLong), ReceiveResult::kOk);
  EXPECT_EQ(message[0].text(), std::string_view("\x01t\0", 3));

  const std::string topic("t\0", 2);
  const auto send = [&](const std::string& name, const Header& header,
                        Message payload) {
    Message bad = MakeMessage(Frame::Copy(name));
    for (Frame& frame : Encode(header, std::move(payload))) {
      bad.push_back(std::move(frame));
    }
    ASSERT_EQ(hostile.Send(bad, kLong), SendResult::kOk);
    EXPECT_EQ(subscriber.Process(milliseconds(1)), ReceiveResult::kTimeout);
  };
  const Header good{.kind = kPublicationKind,
                    .flags = kPayloadCrc,
                    .session_id = 1,
                    .schema_hash = TestProtocol().schema_hash,
                    .request_id = 1};
  send(topic, good, {});                       // no description
  send(topic, good, Text("0123456789abcde"));  // too short for one
  Header header = good;
  header.kind = 1;
  send(topic, header, Text("0123456789abcdef"));
  header = good;
  header.schema_hash = 1;
  send(topic, header, Text("0123456789abcdef"));
  header = good;
  header.flags = 0;
  send(topic, header, Text("0123456789abcdef"));
  // a name within the subscription that is no topic
  send(topic + "x" + '\0', good, Text("0123456789abcdef"));
  EXPECT_EQ(subscriber.metrics().malformed, 6u);
  EXPECT_EQ(subscriber.Newest("t"), nullptr);
}

TEST(PublisherTest, ShutdownEndsTheWaits) {
  ZmqContext context;
  Publisher publisher(context, TestProtocol());
  Subscriber subscriber(context, TestProtocol());
  context.Shutdown();
  EXPECT_EQ(publisher.Process(kLong), ReceiveResult::kClosed);
  EXPECT_EQ(subscriber.Process(kLong), ReceiveResult::kClosed);
}

}  // namespace
}  // namespace replicant::rpc
