#include "replicator/parameter_server/parameter_shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <utility>

#include "base/rng.h"
#include "base/rpc/wire.h"
#include "engine/kernels/backend.h"
#include "replicator/calls/graph_replica.h"
#include "tests/replicator/parameter_server/server_threads.h"
#include "tests/replicator/replication_cases.h"

namespace replicant::replicator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MessageOf;
using Status = ServerReply::Status;

std::unique_ptr<StepSplit> SplitOf(const StepFn& step_fn) {
  // outlives what points into it
  static auto* const graphs = new std::deque<Graph>();
  Graph& graph = graphs->emplace_back(/*seed=*/1);
  GraphReplica replica(graph, {.id = 0, .count = 1});
  const Inputs inputs(
      {{"x", graph.Input("x", DType::kF64, Shape({2, kColumns}))}});
  return std::make_unique<StepSplit>(
      SplitStep(graph, step_fn(replica, inputs)));
}

// w -= mean(x), counted.
StepOutputs WeightStep(ReplicaContext& replica, const Inputs& batch) {
  Graph& g = replica.graph();
  const VariableId w = g.AddVariable(
      {.name = "w", .dtype = DType::kF64, .shape = Shape({kColumns})});
  const auto counter = nn::AddStepCounter(g);
  const Output mean = replica.AllReduce(
      graph::ReduceMean(graph::Add(batch.at("x"), g.Read(w)), {.axes = {0}}),
      ReduceOp::kMean);
  return {.values = {},
          .updates = {graph::Assign(g, w, graph::Sub(g.Read(w), mean)),
                      counter.advance}};
}

// --- how a step is divided ---

TEST(StepSplitTest, TheOptimizerIsTheServers) {
  const auto split = SplitOf(NetworkStep);
  // two gradients and their norm's scale
  ASSERT_EQ(split->pushed.size(), 3U);
  EXPECT_THAT(split->pushed_variables, ElementsAre("last", "mean"));
  EXPECT_THAT(split->read_variables,
              ElementsAre("first", "last", "mean", "second"));
  EXPECT_EQ(split->updates.size(), 2U);
}

// Every variable is somewhere, what belongs together is together, and counters
// are everywhere.
TEST(ShardingTest, DealsOutVariablesWithWhatBelongsToThem) {
  const auto split = SplitOf(NetworkStep);
  const Sharding sharding({split.get()}, 2);
  const auto& servers = sharding.servers();
  // 120 numbers and their moments, the largest
  for (const char* name : {"first", "adam/m/first", "adam/v/first"}) {
    EXPECT_THAT(servers.at(name), ElementsAre(0)) << name;
  }
  for (const char* name :
       {"second", "adam/m/second", "adam/v/second", "mean", "last"}) {
    EXPECT_THAT(servers.at(name), ElementsAre(1)) << name;
  }
  EXPECT_THAT(servers.at("step"), ElementsAre(0, 1));
  EXPECT_EQ(servers.size(), 9U);

  // each has its part of the update, and no other's variables
  const ShardStep shard = MakeShardStep(*split, sharding, 1);
  EXPECT_EQ(shard.program.graph->variables().size(), 6U);
  EXPECT_EQ(shard.pushed.size(), 2U);
  EXPECT_THAT(shard.pushed_variables, ElementsAre("last", "mean"));
}

TEST(ShardingTest, MoreServersThanVariablesLeavesSomeEmpty) {
  const auto split = SplitOf(WeightStep);
  const Sharding sharding({split.get()}, 3);
  EXPECT_THAT(sharding.servers().at("w"), ElementsAre(0));
  EXPECT_THAT(HeldVariables(sharding, 2), ElementsAre("step"));
}

// --- one server ---

class ParameterShardTest : public ::testing::Test {
 protected:
  ParameterShardTest() { Assign({1.0, 2.0, 3.0}); }

  struct Answer {
    ServerReply reply;
    std::vector<double> tensors;
  };

  std::unique_ptr<ParameterShard> MakeShard() {
    return std::make_unique<ParameterShard>(
        ParameterShard::Options{.num_workers = 3,
                                .staleness = 1,
                                .patience = std::chrono::seconds(10)},
        std::vector<const StepSplit*>{split_.get()}, sharding_, backend_.get());
  }

  void Send(ServerMessage kind, const ServerRequest& request,
            const std::vector<double>& tensor = {}) {
    rpc::Message message = rpc::EncodeMessage(request);
    if (kind == ServerMessage::kJoin) {
      message.push_back(rpc::Frame::Copy(DescribeSplit(*split_)));
    } else if (!tensor.empty()) {
      message.push_back(rpc::Frame::Copy(std::as_bytes(std::span(tensor))));
    }
    Deliver(kind, request.worker, std::move(message));
  }
  void Deliver(ServerMessage kind, uint32_t worker, rpc::Message message) {
    shard_->Handle(
        kind, std::move(message),
        [this, worker](rpc::Message reply) {
          Answer answer{rpc::DecodeFirstPart<ServerReply>(reply), {}};
          // "w", where it is among the tensors
          if (reply.size() > 1) {
            answer.tensors.resize(reply[1].size() / sizeof(double));
            std::memcpy(answer.tensors.data(), reply[1].bytes().data(),
                        answer.tensors.size() * sizeof(double));
          }
          answers_[worker].push_back(answer);
        },
        now_);
  }
  void Assign(const std::vector<double>& w) {
    Join(0);
    // "step" and "w", in the order of their names
    std::vector<double> tensors = {0.0};
    tensors.insert(tensors.end(), w.begin(), w.end());
    Send(ServerMessage::kAssign, {.worker = 0, .run = 1}, tensors);
    Take(0);
  }
  void Join(uint32_t worker, uint64_t run = 1) {
    Send(ServerMessage::kJoin, {.worker = worker, .run = run});
    ASSERT_EQ(Take(worker).reply.status, Status::kOk);
  }
  void Pull(uint32_t worker, uint64_t sequence) {
    Send(ServerMessage::kPull,
         {.worker = worker, .run = 1, .sequence = sequence});
  }
  void Push(uint32_t worker, uint64_t sequence) {
    Send(ServerMessage::kPush,
         {.worker = worker, .run = 1, .sequence = sequence}, {1.0, 1.0, 1.0});
  }
  // The next answer to the worker, which is there.
  Answer Take(uint32_t worker) {
    auto& answers = answers_[worker];
    if (answers.empty()) {
      ADD_FAILURE() << "no answer to worker " << worker;
      return {};
    }
    Answer answer = std::move(answers.front());
    answers.pop_front();
    return answer;
  }
  bool IsWaiting(uint32_t worker) { return answers_[worker].empty(); }

  std::unique_ptr<StepSplit> split_ = SplitOf(WeightStep);
  Sharding sharding_{{split_.get()}, 1};
  std::unique_ptr<kernels::Backend> backend_ =
      kernels::MakeBackend("reference");
  std::unique_ptr<ParameterShard> shard_ = MakeShard();
  Clock::TimePoint now_;
  std::map<uint32_t, std::deque<Answer>> answers_;
};

TEST_F(ParameterShardTest, APushMovesWhatAPullGives) {
  Pull(0, 1);
  EXPECT_THAT(Take(0).tensors, ElementsAre(1.0, 2.0, 3.0));
  Push(0, 1);
  EXPECT_EQ(Take(0).reply.version, 1);
  Pull(0, 2);
  EXPECT_THAT(Take(0).tensors, ElementsAre(0.0, 1.0, 2.0));
}

TEST_F(ParameterShardTest, ARepeatedRequestIsExecutedOnce) {
  Pull(0, 1);
  Pull(0, 1);
  EXPECT_EQ(Take(0).tensors, Take(0).tensors);
  for (int i = 0; i < 3; ++i) {
    Push(0, 1);
    EXPECT_EQ(Take(0).reply.version, 1);
  }
  Pull(0, 2);
  EXPECT_THAT(Take(0).tensors, ElementsAre(0.0, 1.0, 2.0));
  EXPECT_EQ(shard_->stats().pushes, 1);
  // one that waits is answered as often as it came
  Join(1);
  Join(2);
  Pull(1, 1);
  Pull(2, 1);
  Pull(2, 1);
  EXPECT_TRUE(IsWaiting(2));
  Push(0, 2);
  static_cast<void>(Take(2));
  static_cast<void>(Take(2));
}

TEST_F(ParameterShardTest, WhoWouldExceedTheBoundWaits) {
  Join(1);
  Pull(0, 1);
  Pull(1, 1);
  Push(1, 1);
  static_cast<void>(Take(1));
  static_cast<void>(Take(1));
  Pull(1, 2);
  Push(1, 2);
  // answered the pull, and not the push
  static_cast<void>(Take(1));
  EXPECT_TRUE(IsWaiting(1));
  Push(0, 1);
  EXPECT_EQ(Take(1).reply.version, 3);
  EXPECT_EQ(shard_->stats().largest_staleness, 1);
}

TEST_F(ParameterShardTest, AWorkerThatBeginsAnewIsNotWaitedFor) {
  Join(1);
  Join(2);
  Pull(0, 1);
  Pull(1, 1);
  Pull(2, 1);
  EXPECT_TRUE(IsWaiting(2));
  Join(1, /*run=*/2);
  EXPECT_FALSE(IsWaiting(2));
  // its former self is not listened to
  answers_[1].clear();
  Push(1, 1);
  EXPECT_EQ(Take(1).reply.status, Status::kJoinFirst);
}

TEST_F(ParameterShardTest, ASilentWorkerIsNotWaitedForBeyondPatience) {
  Join(1);
  Join(2);
  Pull(0, 1);
  Pull(1, 1);
  Pull(2, 1);
  now_ += std::chrono::seconds(9);
  shard_->Tick(now_);
  EXPECT_TRUE(IsWaiting(2));
  now_ += std::chrono::seconds(1);
  shard_->Tick(now_);
  EXPECT_FALSE(IsWaiting(2));
  answers_[1].clear();
  Push(1, 1);
  EXPECT_EQ(Take(1).reply.status, Status::kPullFirst);
  EXPECT_EQ(shard_->stats().lost_pushes, 1);
}

// Would catch a last checkpoint that waits five minutes for a worker that was
// killed, and is killed itself.
TEST_F(ParameterShardTest, AWorkerWithoutConnectionIsNotWaitedFor) {
  Join(1);
  Pull(1, 1);
  static_cast<void>(Take(1));
  Send(ServerMessage::kPull, {.worker = 0,
                              .run = 1,
                              .sequence = 1,
                              .step = ServerRequest::kAllVariables});
  EXPECT_TRUE(IsWaiting(0));
  shard_->Lose(1);
  EXPECT_FALSE(IsWaiting(0));
  // if it is there again, its gradient is lost
  Push(1, 1);
  EXPECT_EQ(Take(1).reply.status, Status::kPullFirst);
}

TEST_F(ParameterShardTest, KnowsWhoIsToBeToldOfTheEnd) {
  Join(1);
  Join(2);
  Send(ServerMessage::kEnd, {.worker = 0, .run = 1});
  EXPECT_TRUE(shard_->is_over());
  EXPECT_FALSE(shard_->IsEveryoneTold());
  Push(1, 1);
  EXPECT_EQ(Take(1).reply.status, Status::kEnded);
  EXPECT_FALSE(shard_->IsEveryoneTold());
  shard_->Lose(2);
  EXPECT_TRUE(shard_->IsEveryoneTold());
}

// Would catch a read behind the end of the steps.
TEST_F(ParameterShardTest, APullOfAllWithTheNumberOfAnotherIsANewOne) {
  Pull(0, 1);
  static_cast<void>(Take(0));
  Send(ServerMessage::kPull, {.worker = 0,
                              .run = 1,
                              .sequence = 1,
                              .step = ServerRequest::kAllVariables});
  EXPECT_EQ(Take(0).reply.status, Status::kOk);
}

// Requests of workers that keep no rule: no answer may be lost, no bound
// exceeded, and nobody shut out afterwards.
TEST_F(ParameterShardTest, AnyRequestsLeaveItWhole) {
  RandomStream random(/*seed=*/5, "requests");
  const auto draw = [&](int64_t bound) {
    return static_cast<size_t>(random.UniformInt(bound));
  };
  int64_t num_taken = 0;
  int64_t num_refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    constexpr ServerMessage kKinds[] = {
        ServerMessage::kJoin, ServerMessage::kPull,   ServerMessage::kPull,
        ServerMessage::kPush, ServerMessage::kAssign,
    };
    const ServerMessage kind = kKinds[draw(5)];
    constexpr uint32_t kSteps[] = {0, 0, 0, ServerRequest::kAllVariables, 1};
    const ServerRequest request = {.worker = static_cast<uint32_t>(draw(4)),
                                   .run = 1 + draw(2),
                                   .sequence = draw(6),
                                   .step = kSteps[draw(5)]};
    try {
      Send(kind, request, std::vector<double>(draw(6), 1.0));
      ++num_taken;
    } catch (const InvalidArgument&) {
      ++num_refused;
    } catch (const rpc::MalformedMessage&) {
      ++num_refused;
    }
    if (draw(50) == 0) shard_->Lose(static_cast<uint32_t>(draw(4)));
    if (draw(50) == 0) {
      now_ += std::chrono::seconds(draw(20));
      shard_->Tick(now_);
    }
  }
  EXPECT_GT(num_taken, 1000);
  EXPECT_GT(num_refused, 1000);
  EXPECT_GT(shard_->stats().pushes, 10);
  EXPECT_LE(shard_->stats().largest_staleness, 1);
  // every request but those that still wait, one of each worker, was answered
  size_t num_answers = 1;  // of the join that Assign() has made
  for (const auto& [worker, answers] : answers_) num_answers += answers.size();
  EXPECT_GE(static_cast<int64_t>(num_answers) + 3, num_taken);
  // a worker that keeps the rules is served
  answers_.clear();
  for (const uint32_t worker : {1, 2}) shard_->Lose(worker);
  Join(0, /*run=*/3);
  Send(ServerMessage::kPull, {.worker = 0, .run = 3, .sequence = 100});
  EXPECT_EQ(Take(0).reply.status, Status::kOk);
}

TEST_F(ParameterShardTest, AllVariablesAreGivenBetweenSteps) {
  Join(1);
  Join(2);
  Pull(1, 1);
  Send(ServerMessage::kPull, {.worker = 0,
                              .run = 1,
                              .sequence = 1,
                              .step = ServerRequest::kAllVariables});
  EXPECT_TRUE(IsWaiting(0));
  // does not overtake it
  Pull(2, 1);
  EXPECT_TRUE(IsWaiting(2));
  Push(1, 1);
  EXPECT_FALSE(IsWaiting(0));
  EXPECT_FALSE(IsWaiting(2));
}

TEST_F(ParameterShardTest, GoesOnFromWhatItSaved) {
  const ServerFolder folder;
  Pull(0, 1);
  Push(0, 1);
  Pull(0, 2);
  runtime::SaveCheckpoint(folder.path() / "saved", shard_->CopyVariables(),
                          shard_->Info());
  shard_ = MakeShard();
  shard_->Restore(folder.path() / "saved");
  EXPECT_EQ(shard_->version(), 1);
  answers_.clear();
  // one that was saved is not executed again; one under way is lost
  Push(0, 1);
  EXPECT_EQ(Take(0).reply.status, Status::kOk);
  Push(0, 2);
  EXPECT_EQ(Take(0).reply.status, Status::kPullFirst);
  Pull(0, 3);
  EXPECT_THAT(Take(0).tensors, ElementsAre(0.0, 1.0, 2.0));
}

TEST_F(ParameterShardTest, RefusesWhatDoesNotFit) {
  const auto refusal = [&](ServerMessage kind, const ServerRequest& request,
                           const std::vector<double>& tensor = {}) {
    return MessageOf<Error>([&] { Send(kind, request, tensor); });
  };
  EXPECT_EQ(refusal(ServerMessage::kPull, {.worker = 3, .run = 1}),
            "worker 3 of 3");
  EXPECT_EQ(refusal(ServerMessage::kPull, {.worker = 0, .run = 1, .step = 1}),
            "step 1 of 1");
  Join(1);
  EXPECT_EQ(refusal(ServerMessage::kEnd, {.worker = 1, .run = 1}),
            "is for the first worker");
  Pull(0, 1);
  EXPECT_EQ(refusal(ServerMessage::kPush,
                    {.worker = 0, .run = 1, .sequence = 1}, {1.0}),
            "parameter_server: 8 bytes of tensors, want 24");
  EXPECT_THAT(MessageOf<InvalidArgument>([&] {
                rpc::Message message =
                    rpc::EncodeMessage(ServerRequest{.worker = 1, .run = 2});
                message.push_back(rpc::Frame::Copy(std::string_view("pushes")));
                Deliver(ServerMessage::kJoin, 1, std::move(message));
              }),
              HasSubstr("worker 1 builds other steps than this server: "
                        "\"pushes f64[3]\" here, \"pushes\" there"));
  EXPECT_THAT(
      MessageOf<rpc::MalformedMessage>([&] {
        Deliver(ServerMessage::kPull, 0,
                rpc::MakeMessage(rpc::Frame::Copy(std::string_view("abc"))));
      }),
      HasSubstr("parameter_server.request"));
  EXPECT_EQ(shard_->version(), 0);
}

}  // namespace
}  // namespace replicant::replicator
