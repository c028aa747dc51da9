#include "actors/parameter_client.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "agents/agent_steps.h"
#include "agents/policy_topic.h"
#include "base/rpc/publisher.h"
#include "base/tensor/safetensors.h"
#include "engine/runtime/parameters.h"

namespace replicant::actors {
namespace {

using namespace std::chrono_literals;

class ParameterClientTest : public ::testing::Test {
 protected:
  void Publish(uint64_t version) {
    publisher_.Publish(
        agents::kPolicyTopic, version,
        rpc::MakeMessage(rpc::Frame::Copy(EncodeSafetensors(
            {}, {{agents::kAgentStepsKey, std::to_string(10 * version)}}))));
  }
  // Waits until the client has a value that it has not returned, and returns
  // its version; 0 if none comes.
  uint64_t Await() {
    for (const auto end = Clock::Real().Now() + 60s;
         Clock::Real().Now() < end;) {
      static_cast<void>(publisher_.Process(1ms));
      if (const auto newest = client_.Poll(1ms)) return newest->version;
    }
    return 0;
  }

  rpc::ZmqContext context_;
  rpc::Publisher publisher_{
      context_, rpc::Protocol::FromTable(runtime::kParameterProtocol,
                                         runtime::kParameterVersion,
                                         runtime::kParameterTable)};
  ParameterClient client_{publisher_.Bind("tcp://127.0.0.1:*")};
};

TEST_F(ParameterClientTest, ReturnsEachValueOnce) {
  Publish(7);
  EXPECT_EQ(Await(), 7U);
  EXPECT_FALSE(client_.Poll(0ms));
  Publish(8);
  const auto newest = client_.Poll(60s);
  ASSERT_TRUE(newest);
  EXPECT_EQ(newest->version, 8U);
  EXPECT_EQ(newest->agent_steps, 80);
}

// Would catch a caller that is busy for longer than the queues hold, such as an
// evaluation, and goes on with an old value.
TEST_F(ParameterClientTest, KeepsTheNewestOfAllThatCameMeanwhile) {
  Publish(1);
  ASSERT_EQ(Await(), 1U);
  for (uint64_t version = 2; version <= 100; ++version) {
    static_cast<void>(publisher_.Process(0ms));
    Publish(version);
    client_.Receive(60s);
  }
  const auto newest = client_.Poll(0ms);
  ASSERT_TRUE(newest);
  EXPECT_EQ(newest->version, 100U);
  EXPECT_FALSE(client_.Poll(0ms));
}

}  // namespace
}  // namespace replicant::actors
