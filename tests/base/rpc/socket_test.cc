#include "base/rpc/socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <array>
#include <csignal>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/fs.h"
#include "base/process.h"
#include "base/thread.h"
#include "tests/support/message_of.h"

namespace replicant::rpc {
namespace {

using replicant::testing::MessageOf;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Clock::Duration kLong = seconds(60);
constexpr Clock::Duration kNoWait{0};

Message TwoParts() {
  Message message = MakeMessage(Frame::Copy("one"));
  message.push_back(Frame::Copy("two"));
  return message;
}

// The text of the exception that `call` throws.
template <typename Exception, typename Call>
std::string TextOf(const Call& call) {
  try {
    call();
  } catch (const Exception& e) {
    return e.what();
  }
  return "nothing thrown";
}

bool HasIpv6() {
  ZmqContext context;
  try {
    ZmqSocket(context, SocketType::kRouter).Bind("tcp://[::1]:*");
  } catch (const CommError&) {
    return false;
  }
  return true;
}

class TransportTest : public ::testing::TestWithParam<const char*> {};

// Catches a transport whose options or addresses do not work, and a part that
// is lost or joined to another.
TEST_P(TransportTest, MessageOfTwoPartsGoesThereAndBack) {
  const TemporaryFolder folder;
  std::string address = GetParam();
  if (address.starts_with("tcp://[") && !HasIpv6()) {
    GTEST_SKIP() << "this host has no IPv6";
  }
  if (address == "ipc") address = "ipc://" + (folder.path() / "s").string();
  ZmqContext context;
  ZmqSocket router(context, SocketType::kRouter);
  ZmqSocket dealer(context, SocketType::kDealer);
  const std::string endpoint = router.Bind(address);
  EXPECT_EQ(endpoint.find('*'), std::string::npos);
  dealer.Connect(endpoint);

  Message message = TwoParts();
  ASSERT_EQ(dealer.Send(message, kLong), SendResult::kOk);
  EXPECT_TRUE(message.empty());
  ASSERT_EQ(router.Receive(&message, kLong), ReceiveResult::kOk);
  ASSERT_EQ(message.size(), 3u);
  EXPECT_EQ(message[2].text(), "two");

  ASSERT_EQ(router.Send(message, kNoWait), SendResult::kOk);
  ASSERT_EQ(dealer.Receive(&message, kLong), ReceiveResult::kOk);
  ASSERT_EQ(message.size(), 2u);
  EXPECT_EQ(message[0].text(), "one");
}

INSTANTIATE_TEST_SUITE_P(Transports, TransportTest,
                         ::testing::Values("tcp://127.0.0.1:*", "tcp://[::1]:*",
                                           "ipc", "inproc://test"));

// Would catch a socket that reaches hosts of one address family alone.
TEST(SocketTest, ASocketConnectsToBothAddressFamilies) {
  if (!HasIpv6()) GTEST_SKIP() << "this host has no IPv6";
  ZmqContext context;
  ZmqSocket four(context, SocketType::kRouter);
  ZmqSocket six(context, SocketType::kRouter);
  ZmqSocket dealer(context, SocketType::kDealer);
  dealer.Connect(six.Bind("tcp://[::1]:*"));
  dealer.Connect(four.Bind("tcp://127.0.0.1:*"));
  // in turns
  for (int i = 0; i < 2; ++i) {
    Message message = TwoParts();
    ASSERT_EQ(dealer.Send(message, kLong), SendResult::kOk);
  }
  Message message;
  EXPECT_EQ(four.Receive(&message, kLong), ReceiveResult::kOk);
  EXPECT_EQ(six.Receive(&message, kLong), ReceiveResult::kOk);
}

TEST(NumericEndpointTest, NumbersAndOtherTransportsStay) {
  for (const char* same : {"tcp://10.0.0.1:7", "tcp://[fd00::1]:7", "tcp://*:7",
                           "ipc:///a", "inproc://x"}) {
    EXPECT_EQ(NumericEndpoint(same), same);
  }
  EXPECT_EQ(NumericEndpoint("tcp://localhost:7"), "tcp://127.0.0.1:7");
}

TEST(NumericEndpointTest, ANameWithoutAddressIsNamed) {
  EXPECT_THAT(
      TextOf<CommError>([] { NumericEndpoint("tcp://no-such.invalid:7"); }),
      ::testing::StartsWith("tcp://no-such.invalid:7: no-such.invalid: "));
}

TEST(SocketTest, ReceiveAndSendTimeOutAndLeaveTheMessage) {
  ZmqContext context;
  ZmqSocket dealer(context, SocketType::kDealer, {.is_immediate = true});
  Message message;
  EXPECT_EQ(dealer.Receive(&message, milliseconds(1)), ReceiveResult::kTimeout);
  message = TwoParts();
  EXPECT_EQ(dealer.Send(message, milliseconds(1)), SendResult::kTimeout);
  EXPECT_EQ(message[1].text(), "two");
}

TEST(SocketTest, RouterSaysThatNobodyHasAnAddress) {
  ZmqContext context;
  ZmqSocket router(context, SocketType::kRouter);
  router.Bind("inproc://test");
  Message message = TwoParts();
  EXPECT_EQ(router.Send(message, kNoWait), SendResult::kUnroutable);
  EXPECT_EQ(message[1].text(), "two");
}

// The queue of one slow peer is bounded, and full is an outcome.
TEST(SocketTest, RouterReportsAFullQueue) {
  ZmqContext context;
  ZmqSocket router(context, SocketType::kRouter, {.send_queue_messages = 2});
  ZmqSocket dealer(context, SocketType::kDealer, {.receive_queue_messages = 2});
  router.Bind("inproc://test");
  dealer.Connect("inproc://test");
  Message hello = TwoParts();
  ASSERT_EQ(dealer.Send(hello, kLong), SendResult::kOk);
  ASSERT_EQ(router.Receive(&hello, kLong), ReceiveResult::kOk);

  SendResult result = SendResult::kOk;
  int sent = 0;
  for (; result == SendResult::kOk && sent < 100; ++sent) {
    Message copy = Share(hello);
    result = router.Send(copy, kNoWait);
  }
  EXPECT_EQ(result, SendResult::kTimeout);
  // both queues together, and the one that failed
  EXPECT_EQ(sent, 5);
}

TEST(SocketTest, TakenPortIsAnErrorWithEndpointAndHint) {
  ZmqContext context;
  ZmqSocket first(context, SocketType::kRouter);
  ZmqSocket second(context, SocketType::kRouter);
  const std::string endpoint = first.Bind("tcp://127.0.0.1:*");
  EXPECT_EQ(TextOf<CommError>([&] { second.Bind(endpoint); }),
            "bind " + endpoint +
                ": Address already in use; hint: another process listens "
                "there; choose another address");
}

TEST(SocketTest, AnIpcPathInUseIsAnErrorThatNamesTheOwner) {
  ZmqContext context;
  const TemporaryFolder folder;
  const std::string endpoint = "ipc://" + (folder.path() / "s").string();
  {
    ZmqSocket first(context, SocketType::kRouter);
    first.Bind(endpoint);
    ZmqSocket second(context, SocketType::kRouter);
    EXPECT_EQ(MessageOf<CommError>([&] { second.Bind(endpoint); }),
              "bind " + endpoint + ": in use by process " + HostAndPid());
  }
  ZmqSocket third(context, SocketType::kRouter);
  EXPECT_EQ(third.Bind(endpoint), endpoint);
}

TEST(SocketTest, BadEndpointIsAnError) {
  ZmqContext context;
  ZmqSocket dealer(context, SocketType::kDealer);
  EXPECT_EQ(TextOf<CommError>([&] { dealer.Connect("tcp://nowhere"); }),
            "connect tcp://nowhere: Invalid argument");
}

// Would catch a role without keys that waits for ever for a service of another
// host.
TEST(SocketTest, AnotherHostIsOutOfReachWithoutKeys) {
  ZmqContext context;
  ZmqSocket dealer(context, SocketType::kDealer);
  for (const char* const endpoint :
       {"tcp://192.0.2.1:7001", "tcp://host.example:7001"}) {
    EXPECT_EQ(TextOf<InvalidArgument>([&] { dealer.Connect(endpoint); }),
              std::string("connect ") + endpoint +
                  ": without CURVE keys only loopback addresses may be "
                  "reached, since every service on another host has keys; "
                  "hint: give this side the keys of the run or of the service");
  }
  EXPECT_NO_THROW(dealer.Connect("tcp://localhost:7001"));
  const CurveKeyPair keys = GenerateCurveKeyPair();
  ZmqSocket encrypted(context, SocketType::kDealer,
                      {.curve = CurveClient{keys, keys.public_key}});
  EXPECT_NO_THROW(encrypted.Connect("tcp://192.0.2.1:7001"));
}

// Would catch port 70000, at which the library listens as 4464.
TEST(SocketTest, APortThatThereIsNotIsRefused) {
  ZmqContext context;
  ZmqSocket socket(context, SocketType::kRouter);
  EXPECT_EQ(TextOf<CommError>([&] { socket.Bind("tcp://127.0.0.1:70000"); }),
            "tcp://127.0.0.1:70000: port '70000' is not a whole number in [0, "
            "65535]; hint: * takes a free port");
  EXPECT_THROW(socket.Connect("tcp://127.0.0.1:-1"), CommError);
}

TEST(SocketTest, WithoutKeysOnlyLoopbackMayBeBound) {
  ZmqContext context;
  ZmqSocket router(context, SocketType::kRouter);
  EXPECT_EQ(TextOf<InvalidArgument>([&] { router.Bind("tcp://0.0.0.0:*"); }),
            "bind tcp://0.0.0.0:*: without CURVE keys only loopback addresses "
            "may be bound, since anyone who reaches the port could use the "
            "service; hint: give the service keys, or bind tcp://127.0.0.1:*");
}

TEST(SocketTest, OnlyLoopbackNumbersAndLocalTransportsAreLocal) {
  for (const char* local : {"tcp://127.0.0.1:1", "tcp://127.9.9.9:*",
                            "tcp://[::1]:5", "ipc:///a", "inproc://x"}) {
    EXPECT_TRUE(IsLocalEndpoint(local)) << local;
  }
  for (const char* open :
       {"tcp://*:1", "tcp://0.0.0.0:1", "tcp://localhost:1", "tcp://eth0:1",
        "tcp://127.0.0.1.example.org:1", "tcp://[::]:1", "tcp://10.0.0.1:1",
        "tcp://127.1", "udp://127.0.0.1:1", ""}) {
    EXPECT_FALSE(IsLocalEndpoint(open)) << open;
  }
}

// A hostile sender of endless parts must not fill the memory of a receiver
// that keeps the parts, nor leave their rest as a next message.
TEST(SocketTest, TooManyPartsAreCutAndTheNextMessageIsWhole) {
  ZmqContext context;
  ZmqSocket receiver(context, SocketType::kPair, {.max_parts = 3});
  ZmqSocket sender(context, SocketType::kPair);
  receiver.Bind("inproc://test");
  sender.Connect("inproc://test");
  Message message(10);
  ASSERT_EQ(sender.Send(message, kLong), SendResult::kOk);
  message = TwoParts();
  ASSERT_EQ(sender.Send(message, kLong), SendResult::kOk);

  EXPECT_EQ(receiver.Receive(&message, kLong), ReceiveResult::kTooManyParts);
  EXPECT_EQ(message.size(), 3u);
  EXPECT_EQ(receiver.Receive(&message, kLong), ReceiveResult::kOk);
  EXPECT_EQ(message.size(), 2u);
}

// An oversized part ends its sender's connection; others are still served.
TEST(SocketTest, OversizedPartDoesNotArrive) {
  ZmqContext context;
  ZmqSocket router(context, SocketType::kRouter, {.max_part_bytes = 1000});
  ZmqSocket bad(context, SocketType::kDealer);
  ZmqSocket good(context, SocketType::kDealer);
  const std::string endpoint = router.Bind("tcp://127.0.0.1:*");
  bad.Connect(endpoint);
  good.Connect(endpoint);
  Message message = MakeMessage(Frame(1001));
  ASSERT_EQ(bad.Send(message, kLong), SendResult::kOk);
  message = MakeMessage(Frame::Copy("good"));
  ASSERT_EQ(good.Send(message, kLong), SendResult::kOk);
  ASSERT_EQ(router.Receive(&message, kLong), ReceiveResult::kOk);
  EXPECT_EQ(message[1].text(), "good");
  EXPECT_EQ(router.Receive(&message, milliseconds(50)),
            ReceiveResult::kTimeout);
}

// Large parts are handed on without a copy, and released when they are sent.
TEST(SocketTest, BorrowedPartIsReleasedAfterItWasReceived) {
  const std::vector<std::byte> bytes(1 << 20, std::byte{5});
  std::atomic<bool> is_released = false;
  ZmqContext context;
  ZmqSocket sender(context, SocketType::kPair);
  ZmqSocket receiver(context, SocketType::kPair);
  receiver.Bind("inproc://test");
  sender.Connect("inproc://test");
  Message message =
      MakeMessage(Frame::Borrow(bytes, [&] { is_released = true; }));
  ASSERT_EQ(sender.Send(message, kLong), SendResult::kOk);
  ASSERT_EQ(receiver.Receive(&message, kLong), ReceiveResult::kOk);
  EXPECT_EQ(message[0].bytes().data(), bytes.data());
  EXPECT_FALSE(is_released);
  message.clear();
  EXPECT_TRUE(is_released);
}

TEST(SocketTest, ShutdownEndsAWait) {
  ZmqContext context;
  ZmqSocket dealer(context, SocketType::kDealer);
  dealer.DetachFromThread();
  ReceiveResult result = ReceiveResult::kOk;
  Thread waiter("waiter", [&](const auto&) {
    Message message;
    result = dealer.Receive(&message, kLong);
  });
  context.Shutdown();
  waiter.Join();
  EXPECT_EQ(result, ReceiveResult::kClosed);
}

void Ignore(int /*signal*/) {}

// A signal during a wait must not end it early, nor as an error.
TEST(SocketTest, SignalsDoNotEndAWait) {
  struct sigaction action {};
  action.sa_handler = &Ignore;  // without SA_RESTART: system calls fail
  struct sigaction old {};
  ASSERT_EQ(sigaction(SIGUSR1, &action, &old), 0);
  ZmqContext context;
  ZmqSocket receiver(context, SocketType::kPair);
  ZmqSocket sender(context, SocketType::kPair);
  receiver.Bind("inproc://test");
  sender.Connect("inproc://test");
  sender.DetachFromThread();
  const pthread_t waiter = pthread_self();
  Thread signaller("signaller", [&](const auto&) {
    for (int i = 0; i < 1000; ++i) pthread_kill(waiter, SIGUSR1);
    Message message = TwoParts();
    EXPECT_EQ(sender.Send(message, kLong), SendResult::kOk);
  });
  Message message;
  EXPECT_EQ(receiver.Receive(&message, kLong), ReceiveResult::kOk);
  EXPECT_EQ(message.size(), 2u);
  signaller.Join();
  sigaction(SIGUSR1, &old, nullptr);
}

TEST(SocketTest, PollTellsWhichItemIsReady) {
  ZmqContext context;
  ZmqSocket first(context, SocketType::kPair);
  ZmqSocket second(context, SocketType::kPair);
  ZmqSocket sender(context, SocketType::kPair);
  first.Bind("inproc://first");
  second.Bind("inproc://second");
  sender.Connect("inproc://second");
  Message message = TwoParts();
  ASSERT_EQ(sender.Send(message, kLong), SendResult::kOk);
  std::array<PollItem, 2> items{};
  items[0].socket = &first;
  items[1].socket = &second;
  EXPECT_EQ(Poll(items, kLong), PollResult::kReady);
  EXPECT_FALSE(items[0].can_receive);
  EXPECT_TRUE(items[1].can_receive);
  EXPECT_EQ(Poll(std::span(items).first(1), milliseconds(1)),
            PollResult::kTimeout);
}

TEST(SocketDeathTest, UseFromAnotherThreadWithoutHandOverAborts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  ZmqContext context;
  ZmqSocket socket(context, SocketType::kPair);
  EXPECT_DEATH(
      {
        Thread other("other", [&](const auto&) { socket.Subscribe(""); });
        other.Join();
      },
      "a socket is used from a thread that does not own it");
}

TEST(SocketDeathTest, SocketThatOutlivesItsContextAborts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        auto context = std::make_unique<ZmqContext>();
        const ZmqSocket socket(*context, SocketType::kPair);
        context.reset();
      },
      "1 sockets outlive their context");
}

}  // namespace
}  // namespace replicant::rpc
