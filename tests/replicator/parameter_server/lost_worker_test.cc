// A worker that another process replaces, over ZeroMQ.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "base/rpc/group_key.h"
#include "base/rpc/socket.h"
#include "replicator/calls/graph_replica.h"
#include "replicator/make_replicator.h"
#include "replicator/parameter_server/server_link.h"
#include "replicator/parameter_server/step_split.h"
#include "tests/replicator/parameter_server/server_threads.h"
#include "tests/replicator/replication_cases.h"

namespace replicant::replicator {
namespace {

using namespace std::chrono_literals;
using Status = ServerReply::Status;

StepOutputs CountStep(ReplicaContext& replica, const Inputs& /*batch*/) {
  return {.values = {},
          .updates = {nn::AddStepCounter(replica.graph()).advance}};
}

std::string CountStepDescription() {
  Graph graph(/*seed=*/3);
  GraphReplica replica(graph, {.id = 0, .count = 1});
  return DescribeSplit(SplitStep(graph, CountStep(replica, Inputs({}))));
}

// Worker 1 without a replicator, which would push at once.
class BareWorker {
 public:
  explicit BareWorker(const ReplicationConfig& config)
      : link_(context_,
              {.server = 0,
               .find = [endpoint = config.servers[0]] { return endpoint; },
               .should_stop = [] { return false; },
               .worker = 1,
               .description = CountStepDescription(),
               .timeout = 60s},
              {}) {
    link_.Join();
  }

  Status Ask(ServerMessage kind) {
    link_.Start(kind, /*sequence=*/1, /*step=*/0, {}, "answer");
    return link_.Finish().status;
  }

 private:
  rpc::ZmqContext context_;
  ServerLink link_;
};

TEST(LostWorkerTest, TheOneInItsPlaceKeepsItsPull) {
  const ServerFolder folder;
  const ReplicationConfig config = folder.Config(1, 2, /*staleness=*/4);
  const auto servers = StartServers(config, Rows(1, 0, WholeValue), CountStep);
  const auto first = MakeReplicator(config, /*seed=*/3);
  const auto input = first->MakeInput(Rows(1, 2, WholeValue));
  const auto step = first->Build(*input, CountStep);
  ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
  ASSERT_EQ(BareWorker(config).Ask(ServerMessage::kPull), Status::kOk);

  BareWorker again(config);
  ASSERT_EQ(again.Ask(ServerMessage::kPull), Status::kOk);
  // a long step: the server looks for lost connections twice a second
  std::this_thread::sleep_for(1600ms);
  EXPECT_EQ(again.Ask(ServerMessage::kPush), Status::kOk);
  first->Stop();
}

}  // namespace
}  // namespace replicant::replicator
