#include "base/rpc/group_key.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/fs.h"
#include "base/rpc/client.h"
#include "base/rpc/publisher.h"
#include "base/rpc/server.h"
#include "base/rpc/subscriber.h"
#include "base/thread.h"

namespace replicant::rpc {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr Clock::Duration kLong = seconds(60);
constexpr uint16_t kEcho = 1;

const Protocol& TestProtocol() {
  static const Protocol protocol = Protocol::FromTable("test", 1, "echo");
  return protocol;
}

// Collects what any thread logs while it lives.
class LogOfTest {
 public:
  LogOfTest()
      : old_(spdlog::default_logger()), sink_(std::make_shared<Sink>()) {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", sink_));
  }
  ~LogOfTest() { spdlog::set_default_logger(old_); }

  std::string text() const { return sink_->text(); }
  // Whether a line with `part` is there, or comes.
  bool Await(const std::string& part) const {
    const Clock::TimePoint end = Clock::Real().Now() + kLong;
    while (text().find(part) == std::string::npos) {
      if (Clock::Real().Now() > end) return false;
      std::this_thread::sleep_for(milliseconds(5));
    }
    return true;
  }

 private:
  class Sink : public spdlog::sinks::base_sink<std::mutex> {
   public:
    std::string text() {
      const std::lock_guard lock(mutex_);
      return text_;
    }

   private:
    void sink_it_(const spdlog::details::log_msg& message) override {
      text_.append(message.payload.data(), message.payload.size());
      text_ += '\n';
    }
    void flush_() override {}

    std::string text_;
  };

  std::shared_ptr<spdlog::logger> old_;
  std::shared_ptr<Sink> sink_;
};

// A server and a publisher of a group, each with a thread.
class Group {
 public:
  explicit Group(const GroupKey& key)
      : guard_(key.MakeGuard(context_)),
        server_(context_, TestProtocol(),
                {.socket = {.curve = key.server_role()}}),
        publisher_(context_, TestProtocol(),
                   {.socket = {.curve = key.server_role()}}) {
    server_.Handle(kEcho, [](Request& request, Responder responder) {
      responder.Reply(std::move(request.payload));
    });
    endpoint = server_.Bind("tcp://127.0.0.1:*");
    topics = publisher_.Bind("tcp://127.0.0.1:*");
    publisher_.Publish("value", 1, MakeMessage(Frame::Copy("one")));
    publisher_.DetachFromThread();
    serving_.emplace("server", [this](const auto&) { server_.Run(); });
    publishing_.emplace("publisher", [this](const Thread::StopToken& stop) {
      while (!stop.IsStopRequested()) {
        static_cast<void>(publisher_.Process(milliseconds(10)));
      }
      publisher_.DetachFromThread();
    });
  }
  ~Group() {
    server_.Stop();
    serving_.reset();
    publishing_.reset();
  }

  std::string endpoint;
  std::string topics;

 private:
  ZmqContext context_;
  std::unique_ptr<ZapHandler> guard_;
  Server server_;
  Publisher publisher_;
  std::optional<Thread> serving_;
  std::optional<Thread> publishing_;
};

// The outcome of a call with `key`: the reply, or the error's text. A client
// waits on while the log is quiet.
std::string Ask(const std::string& endpoint, const GroupKey& key) {
  ZmqContext context;
  Client client(context, TestProtocol(),
                {.socket = {.curve = key.client_role()}});
  client.Connect(endpoint);
  try {
    const Clock::TimePoint end = Clock::Real().Now() + kLong;
    while (client.AwaitSession(milliseconds(100)) != CallResult::kOk) {
      if (Clock::Real().Now() > end) return "no answer";
    }
    CallReply reply = client.Call(kEcho, MakeMessage(Frame::Copy("hello")),
                                  {.timeout = kLong, .is_idempotent = true});
    return reply.result == CallResult::kOk
               ? std::string(reply.payload.at(0).text())
               : "lost";
  } catch (const CommError& e) {
    return e.what();
  }
}

// As Ask(), for a subscription; it ends, too, once `is_over` says so.
std::string Follow(const std::string& endpoint, const GroupKey& key,
                   const std::function<bool()>& is_over) {
  ZmqContext context;
  Subscriber subscriber(context, TestProtocol(),
                        {.socket = {.curve = key.client_role()}});
  subscriber.Connect(endpoint);
  subscriber.Subscribe("value");
  const Clock::TimePoint end = Clock::Real().Now() + kLong;
  try {
    while (Clock::Real().Now() < end && !is_over()) {
      if (subscriber.Process(milliseconds(20)) != ReceiveResult::kOk) continue;
      return std::string(subscriber.Newest("value")->payload.at(0).text());
    }
  } catch (const CommError& e) {
    return e.what();
  }
  return "nothing";
}

bool Never() { return false; }

TEST(GroupKeyTest, HoldersSpeakToEachOther) {
  const GroupKey key(GenerateCurveKeyPair());
  const Group group(key);
  EXPECT_EQ(Ask(group.endpoint, key), "hello");
  EXPECT_EQ(Follow(group.topics, key, Never), "one");
}

TEST(GroupKeyTest, AGroupWithoutKeyIsOpenOnLoopback) {
  const Group group((GroupKey()));
  EXPECT_EQ(Ask(group.endpoint, {}), "hello");
  EXPECT_EQ(Follow(group.topics, {}, Never), "one");
}

TEST(GroupKeyTest, AnotherKeyIsNamedByBothSidesOfACall) {
  const LogOfTest log;
  const GroupKey other(GenerateCurveKeyPair());
  {
    const Group group((GroupKey(GenerateCurveKeyPair())));
    EXPECT_THAT(Ask(group.endpoint, other),
                HasSubstr("hint: is its public key right"));
    EXPECT_TRUE(log.Await("test server:"));
  }
  EXPECT_THAT(log.text(), HasSubstr("test server: a client expects a different "
                                    "CURVE key from this side"));
  EXPECT_THAT(log.text(), HasSubstr("connect tcp://127.0.0.1"));
}

TEST(GroupKeyTest, AnotherKeyIsNamedByBothSidesOfASubscription) {
  const LogOfTest log;
  const GroupKey other(GenerateCurveKeyPair());
  std::string end;
  {
    const Group group((GroupKey(GenerateCurveKeyPair())));
    end = Follow(group.topics, other, [&] {
      const std::string text = log.text();
      return text.find("connect tcp://127.0.0.1") != text.npos &&
             text.find("test publisher:") != text.npos;
    });
  }
  EXPECT_EQ(end, "nothing");
  EXPECT_THAT(log.text(), HasSubstr("test publisher: a client expects a "
                                    "different CURVE key from this side"));
  EXPECT_THAT(log.text(), HasSubstr("connect tcp://127.0.0.1"));
}

// The side that is the first to notice closes the connection; the other one
// may see no more than that.
TEST(GroupKeyTest, AMissingKeyIsNamedByBothSides) {
  const LogOfTest log;
  const GroupKey key(GenerateCurveKeyPair());
  for (const bool is_servers : {true, false}) {
    const Group group(is_servers ? key : GroupKey());
    const GroupKey asker = is_servers ? GroupKey() : key;
    EXPECT_THAT(Ask(group.endpoint, asker),
                AnyOf(HasSubstr("only one of the two sides has CURVE keys"),
                      HasSubstr("does this side have keys if the peer does?")));
    const std::string end = Follow(group.topics, asker, [&] {
      return log.text().find(group.topics) != std::string::npos;
    });
    EXPECT_THAT(end, AnyOf("nothing", HasSubstr("has CURVE keys")));
    EXPECT_TRUE(log.Await("test server:"));
    EXPECT_TRUE(log.Await("test publisher:"));
  }
  for (const char* const side : {"test server", "test publisher"}) {
    EXPECT_THAT(
        log.text(),
        AnyOf(HasSubstr(fmt::format("{}: only one of the two sides", side)),
              HasSubstr(fmt::format("{}: a client ended the connection "
                                    "during the handshake",
                                    side))));
  }
}

TEST(GroupKeyTest, AServerAdmitsOtherClientsOfItsList) {
  const GroupKey key(GenerateCurveKeyPair());
  const CurveKeyPair own = GenerateCurveKeyPair();
  const CurveKeyPair guest = GenerateCurveKeyPair();
  ZmqContext context;
  const auto guard = key.MakeGuard(context, {guest.public_key});
  Server server(context, TestProtocol(),
                {.socket = {.curve = CurveServer{own}}});
  server.Handle(kEcho, [](Request& request, Responder responder) {
    responder.Reply(std::move(request.payload));
  });
  const std::string endpoint = server.Bind("tcp://127.0.0.1:*");
  Thread loop("server", [&](const auto&) { server.Run(); });
  for (const CurveRole& role : {key.client_role(own.public_key),
                                GroupKey(guest).client_role(own.public_key)}) {
    ZmqContext clients;
    Client client(clients, TestProtocol(), {.socket = {.curve = role}});
    client.Connect(endpoint);
    EXPECT_EQ(client.AwaitSession(kLong), CallResult::kOk);
  }
  server.Stop();
  loop.Join();
}

TEST(GroupKeyTest, AFileIsReadOrRefusedAndAnEmptyPathIsNone) {
  const TemporaryFolder folder("group_key_test");
  const CurveKeyPair pair = GenerateCurveKeyPair();
  WriteKeyPair(folder.path() / "run.key", pair);
  const GroupKey key = GroupKey::FromFile(folder.path() / "run.key");
  EXPECT_EQ(std::get<CurveServer>(key.server_role()).keys, pair);
  EXPECT_FALSE(GroupKey::FromFile("").is_set());
  EXPECT_THROW(GroupKey::FromFile(folder.path() / "absent.key"), IoError);
}

}  // namespace
}  // namespace replicant::rpc
