#include "learner/parameter_publisher.h"

#include <gtest/gtest.h>

#include <chrono>

#include "base/error.h"
#include "base/rpc/subscriber.h"
#include "engine/runtime/parameters.h"
#include "tests/support/graph_runner.h"
#include "tests/support/message_of.h"

namespace replicant::learner {
namespace {

using namespace std::chrono_literals;
using testing::GraphRunner;
using testing::MessageOf;
using testing::Values;

class ParameterSubscriber {
 public:
  explicit ParameterSubscriber(const std::string& endpoint) {
    subscriber_.Connect(endpoint);
    subscriber_.Subscribe("policy");
  }

  // Waits for `version`; false if it does not come.
  bool Await(uint64_t version) {
    const auto deadline = Clock::Real().Now() + 60s;
    while (Clock::Real().Now() < deadline) {
      static_cast<void>(subscriber_.Process(100ms));
      rpc::Publication* newest = subscriber_.Newest("policy");
      if (newest != nullptr && newest->version == version) {
        text = std::string(newest->payload.at(0).text());
        return true;
      }
    }
    return false;
  }

  std::string text;

 private:
  rpc::ZmqContext context_;
  rpc::Subscriber subscriber_{
      context_,
      rpc::Protocol::FromTable("parameters", 1, runtime::kParameterTable)};
};

TEST(ParameterPublisherTest, GivesTheNewestOnJoiningAndEachNewerOne) {
  ParameterPublisher publisher("tcp://127.0.0.1:*");
  publisher.Publish("policy", 1, "old");
  publisher.Publish("policy", 2, "new");
  ParameterSubscriber early(publisher.endpoint());
  ASSERT_TRUE(early.Await(2));
  EXPECT_EQ(early.text, "new");
  publisher.Publish("policy", 3, "newer");
  EXPECT_TRUE(early.Await(3));
  ParameterSubscriber late(publisher.endpoint());
  ASSERT_TRUE(late.Await(3));
  EXPECT_EQ(late.text, "newer");
}

// In the caller's thread: an exception of the publisher's would abort.
TEST(ParameterPublisherTest, WhatNoSubscriberTakesIsRefused) {
  ParameterPublisher publisher("tcp://127.0.0.1:*");
  EXPECT_EQ(MessageOf<InvalidArgument>([&] {
              publisher.Publish("policy", 1,
                                std::string((size_t{256} << 20) + 1, 'x'));
            }),
            "parameters 'policy' of 1 parts, the longest of 268435457 bytes, "
            "268435457 bytes in all; allowed are 1023 parts of 268435456 "
            "bytes, 4294967280 bytes in all; hint: a smaller network");
  publisher.Publish("policy", 2, "small");
  ParameterSubscriber actor(publisher.endpoint());
  EXPECT_TRUE(actor.Await(2));
}

TEST(ParameterPublisherTest, VariablesArriveWhole) {
  GraphRunner learner;
  learner.graph().AddVariable({.name = "policy/w", .shape = Shape({2})});
  learner.graph().AddVariable({.name = "critic/w", .shape = Shape({2})});
  learner.store().Declare(learner.graph());
  learner.store().Set("policy/w",
                      Values(DType::kF32, Shape({2}), {1.5, -2}).view());
  ParameterPublisher publisher("tcp://127.0.0.1:*");
  publisher.Publish("policy", 7,
                    runtime::EncodeVariables(learner.store(), {"policy/w"}));
  ParameterSubscriber actor(publisher.endpoint());
  ASSERT_TRUE(actor.Await(7));

  GraphRunner policy;
  policy.graph().AddVariable({.name = "policy/w", .shape = Shape({2})});
  policy.store().Declare(policy.graph());
  runtime::SetVariables(std::as_bytes(std::span(actor.text)), "policy",
                        policy.store());
  EXPECT_EQ(testing::ToDoubles(policy.store().Get("policy/w").view()),
            (std::vector<double>{1.5, -2}));
}

TEST(ParameterPublisherTest, RefusesAnAddressInUse) {
  const ParameterPublisher publisher("tcp://127.0.0.1:*");
  EXPECT_THROW(ParameterPublisher(publisher.endpoint()), CommError);
}

}  // namespace
}  // namespace replicant::learner
