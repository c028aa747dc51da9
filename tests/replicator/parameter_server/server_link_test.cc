#include "replicator/parameter_server/server_link.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/rpc/group_key.h"
#include "tests/base/rpc/running_server.h"

namespace replicant::replicator {
namespace {

using namespace std::chrono_literals;
using Kind = ServerMessage;
using Status = ServerReply::Status;

// A server that restarts, and so forgets its workers and variables, just before
// it handles the requests with the numbers `restarts`, from 1.
class ForgetfulServer {
 public:
  explicit ForgetfulServer(std::set<size_t> restarts)
      : restarts_(std::move(restarts)),
        server_(ParameterServerProtocol(), "tcp://127.0.0.1:*",
                [this](rpc::Server& server) {
                  for (const Kind kind :
                       {Kind::kJoin, Kind::kPull, Kind::kPush, Kind::kAssign}) {
                    server.Handle(
                        static_cast<uint16_t>(kind),
                        [this, kind](const rpc::Request& request,
                                     const rpc::Responder& responder) {
                          responder.Reply(rpc::EncodeMessage(ReplyTo(
                                              request.request_id, kind)),
                                          /*has_crc=*/true);
                        });
                  }
                }) {}

  const std::string& endpoint() const { return server_.endpoint(); }
  // Ends the server. Returns the kinds of the requests that it has handled.
  std::vector<Kind> Requests() {
    server_.Stop();
    return requests_;
  }

 private:
  // A request that is repeated, as after a long wait, gets the same reply.
  ServerReply ReplyTo(uint64_t request_id, Kind kind) {
    const auto [reply, is_new] = replies_.try_emplace(request_id);
    if (is_new) reply->second = Handle(kind);
    return reply->second;
  }
  ServerReply Handle(Kind kind) {
    requests_.push_back(kind);
    if (restarts_.contains(requests_.size())) {
      is_joined_ = has_variables_ = false;
    }
    is_joined_ |= kind == Kind::kJoin;
    if (!is_joined_) return {.status = Status::kJoinFirst};
    has_variables_ |= kind == Kind::kAssign;
    return {.version = has_variables_ ? 1 : 0};
  }

  const std::set<size_t> restarts_;
  std::vector<Kind> requests_;
  std::map<uint64_t, ServerReply> replies_;
  bool is_joined_ = false;
  bool has_variables_ = false;
  rpc::testing::RunningServer server_;  // last: its loop uses all of the above
};

// A worker that has joined.
class Worker {
 public:
  explicit Worker(const ForgetfulServer& server)
      : link_(context_,
              {.find = [endpoint = server.endpoint()] { return endpoint; },
               .should_stop = [] { return false; },
               .timeout = 60s},
              {}) {
    link_.Join();
  }

  ServerLink& link() { return link_; }
  Status Ask(Kind kind) {
    link_.Start(kind, /*sequence=*/1, /*step=*/0, {}, "answer");
    return link_.Finish().status;
  }

 private:
  rpc::ZmqContext context_;
  ServerLink link_;
};

// Would catch a push that is lost without a word, and a pull whose answer has
// no variables.
TEST(ServerLinkTest, AServerThatRestartsTwiceIsJoinedTwice) {
  for (const Kind kind : {Kind::kPull, Kind::kPush}) {
    ForgetfulServer server({2, 4});
    EXPECT_EQ(Worker(server).Ask(kind), Status::kOk);
    EXPECT_EQ(server.Requests(),
              (std::vector<Kind>{Kind::kJoin, kind, Kind::kJoin, kind,
                                 Kind::kJoin, kind}));
  }
}

TEST(ServerLinkTest, AServerThatRestartsBeforeItTakesVariablesGetsThemAgain) {
  ForgetfulServer server({2, 4});
  Worker worker(server);
  worker.link().values_to_assign = [] { return std::vector<TensorView>(); };
  EXPECT_EQ(worker.Ask(Kind::kPush), Status::kOk);
  EXPECT_EQ(server.Requests(),
            (std::vector<Kind>{Kind::kJoin, Kind::kPush, Kind::kJoin,
                               Kind::kAssign, Kind::kPush, Kind::kJoin,
                               Kind::kAssign, Kind::kPush}));
}

}  // namespace
}  // namespace replicant::replicator
