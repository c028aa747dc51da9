// A server that dies and comes back under its clients.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/fs.h"
#include "base/rpc/client.h"
#include "base/rpc/wire.h"
#include "base/thread.h"
#include "tests/base/rpc/running_server.h"

namespace replicant::rpc {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::RunningServer;

constexpr Clock::Duration kLong = seconds(60);
constexpr uint16_t kInsert = 1;
constexpr uint16_t kSilent = 2;

const Protocol& TestProtocol() {
  static const Protocol protocol = Protocol::FromTable("test", 1, "insert");
  return protocol;
}

ClientOptions QuickOptions() {
  ClientOptions options;
  options.socket.reconnect_ms = 1;
  options.socket.reconnect_max_ms = 10;
  options.attempt_timeout = milliseconds(200);
  return options;
}

// The state that a service would keep on disk.
struct Store {
  // (client, request id) of every insert; the id makes a repeat harmless
  std::set<std::pair<uint64_t, uint64_t>> seen;
  std::map<uint64_t, uint64_t> sums;  // by client
  std::atomic<int> num_inserts = 0;   // repeated ones left out
};

void SetUpService(Server& server, Store& store) {
  server.Handle(kInsert, [&store](Request& request, Responder responder) {
    WireReader reader("insert", request.payload.at(0).bytes());
    const auto value = reader.Read<uint64_t>("value");
    if (store.seen.emplace(request.peer_id, request.request_id).second) {
      store.sums[request.peer_id] += value;
      ++store.num_inserts;
    }
    responder.Reply({});
  });
  server.Handle(kSilent, [](Request& /*request*/, Responder /*responder*/) {});
}

Message Value(uint64_t value) {
  WireWriter writer;
  writer.Write(value);
  return MakeMessage(writer.Finish());
}

class RestartTest : public ::testing::Test {
 protected:
  void Start() {
    server_ = std::make_unique<RunningServer>(
        TestProtocol(), "ipc://" + (folder_.path() / "service").string(),
        [this](Server& server) { SetUpService(server, store_); });
  }
  void Kill() { server_.reset(); }

  const TemporaryFolder folder_;
  Store store_;
  std::unique_ptr<RunningServer> server_;
};

TEST_F(RestartTest, NewSessionIsReportedOnceBeforeTheNextRequestGoesOut) {
  Start();
  std::vector<std::pair<uint64_t, uint64_t>> changes;
  int inserts_at_change = 0;
  ClientOptions options = QuickOptions();
  options.on_session_change = [&](uint64_t old_id, uint64_t new_id) {
    changes.emplace_back(old_id, new_id);
    inserts_at_change = store_.num_inserts;
  };
  ZmqContext context;
  Client client(context, TestProtocol(), options);
  client.Connect(server_->endpoint());
  ASSERT_EQ(client.Call(kInsert, Value(1), {.timeout = kLong}).result,
            CallResult::kOk);
  const uint64_t first = client.session_id();
  Kill();
  Start();
  ASSERT_EQ(
      client.Call(kInsert, Value(2), {.timeout = kLong, .is_idempotent = true})
          .result,
      CallResult::kOk);
  const uint64_t second = client.session_id();
  EXPECT_NE(first, second);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0], std::make_pair(first, second));
  EXPECT_EQ(inserts_at_change, 1);
  EXPECT_EQ(client.metrics().session_changes, 1u);
  Kill();
  EXPECT_EQ(store_.sums[client.sender_id()], 3u);
}

TEST_F(RestartTest, RequestThatIsNotIdempotentIsLostNotRepeated) {
  Start();
  ZmqContext context;
  Client client(context, TestProtocol(), QuickOptions());
  client.Connect(server_->endpoint());
  ASSERT_EQ(client.AwaitSession(kLong), CallResult::kOk);
  const auto id = client.Start(kSilent, {}, {.timeout = kLong});
  ASSERT_TRUE(id.has_value());
  // known to have arrived once the server has answered what came after it
  ASSERT_EQ(client.Call(kInsert, Value(1), {.timeout = kLong}).result,
            CallResult::kOk);
  Kill();
  const CallReply reply = client.Wait(*id);
  // the server's last word, or the broken connection, whichever comes first
  EXPECT_TRUE(reply.result == CallResult::kLost ||
              reply.error == ErrorCode::kShuttingDown);
}

TEST_F(RestartTest, ClientThatWasThereFirstWaitsForTheServer) {
  ZmqContext context;
  Client client(context, TestProtocol(), QuickOptions());
  client.Connect("ipc://" + (folder_.path() / "service").string());
  const auto id = client.Start(kInsert, Value(5), {.timeout = kLong});
  client.Process(milliseconds(5));
  Start();
  EXPECT_EQ(client.Wait(*id).result, CallResult::kOk);
}

// Makes `count` inserts of the values 1, 2, ..., eight in flight at a time.
// After each answer it stays while `is_paused(number of answers)` holds.
void InsertMany(Client& client, uint64_t count,
                const std::function<bool(uint64_t)>& is_paused) {
  constexpr uint64_t kInFlight = 8;
  uint64_t started = 0;
  for (uint64_t answered = 0; answered < count;) {
    while (started < std::min(count, answered + kInFlight)) {
      const auto id = client.Start(kInsert, Value(++started),
                                   {.timeout = kLong, .is_idempotent = true});
      ASSERT_TRUE(id.has_value());
    }
    const auto id = client.WaitAny(kLong);
    ASSERT_TRUE(id.has_value());
    ASSERT_EQ(client.Wait(*id).result, CallResult::kOk);
    ++answered;
    while (is_paused(answered)) client.Process(milliseconds(1));
  }
}

// Two clients, a thousand inserts each with eight in flight, and a restart in
// the middle: every insert is answered, and none is lost or doubled.
TEST_F(RestartTest, NothingIsLostOrDoubledAcrossARestart) {
  constexpr uint64_t kInserts = 1000;
  Start();
  const std::string endpoint = server_->endpoint();
  std::atomic<int> num_at_half = 0;
  std::atomic<bool> is_stopping = false;
  std::atomic<bool> is_restarted = false;
  std::array<uint64_t, 2> sender_ids{};
  std::array<uint64_t, 2> session_changes{};
  std::vector<std::unique_ptr<Thread>> threads;
  for (size_t c = 0; c < 2; ++c) {
    threads.push_back(std::make_unique<Thread>("client", [&, c](const auto&) {
      ZmqContext context;
      Client client(context, TestProtocol(), QuickOptions());
      client.Connect(endpoint);
      sender_ids[c] = client.sender_id();
      bool is_at_half = false;
      // waits halfway for the other client, and continues while the server is
      // being stopped, but not to its end
      InsertMany(client, kInserts, [&](uint64_t answered) {
        if (answered == kInserts / 2) {
          num_at_half += std::exchange(is_at_half, true) ? 0 : 1;
          return !is_stopping;
        }
        return answered == kInserts * 9 / 10 && !is_restarted;
      });
      session_changes[c] = client.metrics().session_changes;
    }));
  }
  while (num_at_half < 2) std::this_thread::yield();
  is_stopping = true;
  Kill();
  Start();
  is_restarted = true;
  for (const auto& thread : threads) thread->Join();
  Kill();

  EXPECT_EQ(store_.seen.size(), 2 * kInserts);
  for (size_t c = 0; c < 2; ++c) {
    EXPECT_EQ(store_.sums[sender_ids[c]], kInserts * (kInserts + 1) / 2);
    EXPECT_EQ(session_changes[c], 1u);
  }
}

}  // namespace
}  // namespace replicant::rpc
