// Calls of backend pjrt to a plugin, and their failures.
#include "replicator/pjrt/pjrt_replicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/config/load.h"
#include "engine/graph/ops/random.h"
#include "replicator/make_replicator.h"
#include "tests/replicator/replication_cases.h"
#include "tests/support/fake_pjrt/fake_pjrt.h"

namespace replicant::replicator {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using testing::FakePlugin;
using testing::FakeTensor;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MessageOf;
using ::testing::StartsWith;

ReplicationConfig ConfigOf(const FakePlugin& fake, int replicas = 2) {
  return {.strategy = replicas > 1 ? &Strategy::kInGraph : &Strategy::kSingle,
          .replicas = replicas,
          .backend = "pjrt",
          .pjrt = {.plugin = fake.file().string(), .options = {"memory=0.5"}}};
}

// A step with a counter "steps", a vector "v" and noise from a random op.
StepOutputs NoisyStep(ReplicaContext& replica, const Inputs& batch) {
  Graph& g = replica.graph();
  const VariableId v =
      g.AddVariable({.name = "v",
                     .dtype = DType::kF64,
                     .shape = Shape({kColumns}),
                     .initializer =
                         [](RandomStream& /*random*/, MutableTensorView value) {
                           for (double& x : value.Span<double>()) x = 4.0;
                         },
                     .agreement = graph::ReplicaAgreement::kMean});
  const nn::StepCounter counter = nn::AddStepCounter(g, "steps");
  const Output x = batch.at("x");
  const ReplicaContext::RowRange rows = replica.Rows(x.shape()[0]);
  const Output noise = graph::RandomNormal({.name = "noise",
                                            .step = counter.value,
                                            .first_row = rows.first_row,
                                            .row_offset = rows.row_offset},
                                           DType::kF64, x.shape());
  const Output mean = replica.AllReduce(
      graph::ReduceMean(graph::Add(x, noise), {.axes = {0}}), ReduceOp::kMean);
  return {.values = {{"mean", mean}, {"x", x}},
          .updates = {graph::Assign(g, v, graph::Add(g.Read(v), mean)),
                      counter.advance}};
}

// Builds and makes two steps, reads a value and the variables.
void RunTwoSteps(const FakePlugin& fake) {
  const auto replicator = MakeReplicator(ConfigOf(fake), /*seed=*/1);
  const auto input = replicator->MakeInput(Rows(4, 2, WholeValue));
  const auto step = replicator->Build(*input, NoisyStep);
  while (step->Run(kNoWait) == NextResult::kOk) {
  }
  EXPECT_EQ(Values(*step, "mean"), std::vector<double>(kColumns, 0.0));
  EXPECT_EQ(VariablesOf<double>(*replicator).at("v"),
            std::vector<double>(kColumns, 4.0));
}

int64_t Count(const FakePlugin& fake, const std::string& call) {
  return std::ranges::count(fake->calls, call);
}

// The place of an argument of the first module, by its name in the text.
size_t ArgumentOf(const FakePlugin& fake, const std::string& name) {
  const std::string& text = fake->modules[0];
  const size_t at = text.find("loc(\"" + name + "\")");
  EXPECT_NE(at, std::string::npos) << name;
  const size_t begin = text.rfind("%arg", at) + 4;
  return std::stoul(text.substr(begin));
}

std::vector<double> Doubles(const FakeTensor& tensor) {
  std::vector<double> values(tensor.bytes.size() / sizeof(double));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

// A run of NoisyStep's module that advances its counter as the step does, and
// notes the first device's noise.
std::function<void(size_t, const std::vector<FakeTensor>&,
                   std::vector<FakeTensor>&)>
CountingRun(const FakePlugin& fake, std::vector<std::vector<double>>* noise) {
  return [&fake, noise](size_t device, const std::vector<FakeTensor>& arguments,
                        std::vector<FakeTensor>& outputs) {
    if (device == 0) {
      noise->push_back(Doubles(arguments[ArgumentOf(fake, "noise")]));
    }
    for (FakeTensor& output : outputs) {
      if (output.type != PJRT_Buffer_Type_S64) continue;
      int64_t steps = 0;
      std::memcpy(&steps, output.bytes.data(), sizeof(steps));
      ++steps;
      std::memcpy(output.bytes.data(), &steps, sizeof(steps));
    }
  };
}

TEST(PjrtReplicatorTest, CompilesOnceForAllReplicas) {
  const FakePlugin fake;
  RunTwoSteps(fake);
  EXPECT_EQ(fake->modules.size(), 1U);
  EXPECT_THAT(fake->modules[0], HasSubstr("mhlo.num_replicas = 2"));
  EXPECT_THAT(fake->options, ::testing::ElementsAre("memory=0.500000"));
  EXPECT_THAT(fake->live, IsEmpty());
  EXPECT_THAT(fake->problems, IsEmpty());
}

// Catches variables that travel with every step, and values that nobody asked
// for.
TEST(PjrtReplicatorTest, KeepsVariablesOnTheDevicesAndReadsWhatIsAskedFor) {
  const FakePlugin fake;
  const auto replicator = MakeReplicator(ConfigOf(fake), /*seed=*/1);
  const auto input = replicator->MakeInput(Rows(4, 5, WholeValue));
  const auto step = replicator->Build(*input, NoisyStep);
  ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
  // v, the counter, the batch and the noise, on two devices
  EXPECT_EQ(Count(fake, "PJRT_Client_BufferFromHostBuffer"), 8);
  ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
  EXPECT_EQ(Count(fake, "PJRT_Client_BufferFromHostBuffer"), 12);
  EXPECT_EQ(Count(fake, "PJRT_Buffer_ToHostBuffer"), 0);
  EXPECT_EQ(Values(*step, "mean").size(), static_cast<size_t>(kColumns));
  EXPECT_EQ(Values(*step, "mean").size(), static_cast<size_t>(kColumns));
  EXPECT_EQ(Count(fake, "PJRT_Buffer_ToHostBuffer"), 1);
  replicator->variables();
  EXPECT_EQ(Count(fake, "PJRT_Buffer_ToHostBuffer"), 3);
  // nothing has changed since
  replicator->variables();
  EXPECT_EQ(Count(fake, "PJRT_Buffer_ToHostBuffer"), 3);
  ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
  EXPECT_EQ(Count(fake, "PJRT_Client_BufferFromHostBuffer"), 16);
}

TEST(PjrtReplicatorTest, GivesEachReplicaItsRowsAndItsNoise) {
  const FakePlugin fake;
  std::vector<std::vector<double>> x(2), noise(2);
  const auto replicator = MakeReplicator(ConfigOf(fake), /*seed=*/1);
  const auto input = replicator->MakeInput(Rows(4, 2, WholeValue));
  const auto step = replicator->Build(*input, NoisyStep);
  fake->run = [&](size_t device, const std::vector<FakeTensor>& arguments,
                  std::vector<FakeTensor>& /*outputs*/) {
    x[device] = Doubles(arguments[ArgumentOf(fake, "x")]);
    noise[device] = Doubles(arguments[ArgumentOf(fake, "noise")]);
  };
  ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
  for (size_t device = 0; device < 2; ++device) {
    ASSERT_EQ(x[device].size(), 6U);
    for (int64_t i = 0; i < 6; ++i) {
      EXPECT_EQ(x[device][static_cast<size_t>(i)],
                WholeValue(0, static_cast<int64_t>(2 * device) + i / kColumns,
                           i % kColumns));
    }
    ASSERT_EQ(noise[device].size(), 6U);
  }
  EXPECT_NE(noise[0], noise[1]);
  // one replica of our own draws the same four rows
  const auto one = MakeReplicator({.backend = "reference"}, /*seed=*/1);
  const auto all_rows = one->MakeInput(Rows(4, 2, WholeValue));
  const auto drawn =
      one->Build(*all_rows, [](ReplicaContext& replica, const Inputs& batch) {
        const nn::StepCounter counter =
            nn::AddStepCounter(replica.graph(), "steps");
        return StepOutputs{
            .values = {{"noise", graph::RandomNormal(
                                     {.name = "noise", .step = counter.value},
                                     DType::kF64, batch.at("x").shape())}},
            .updates = {counter.advance}};
      });
  ASSERT_EQ(drawn->Run(kNoWait), NextResult::kOk);
  std::vector<double> both = noise[0];
  both.insert(both.end(), noise[1].begin(), noise[1].end());
  const std::vector<double> wanted = Values(*drawn, "noise");
  for (size_t i = 0; i < both.size(); ++i) {
    EXPECT_NEAR(both[i], wanted[i], 1e-6) << i;
  }
}

// A restored counter draws what it drew the first time, and a restored variable
// is the one that the next step begins with, on every device.
TEST(PjrtReplicatorTest, TakesWhatTheHostHasWritten) {
  const FakePlugin fake;
  std::vector<std::vector<double>> noise, v(2);
  const auto replicator = MakeReplicator(ConfigOf(fake), /*seed=*/1);
  const auto input = replicator->MakeInput(Rows(4, 5, WholeValue));
  const auto step = replicator->Build(*input, NoisyStep);
  fake->run = [&, count = CountingRun(fake, &noise)](
                  size_t device, const std::vector<FakeTensor>& arguments,
                  std::vector<FakeTensor>& outputs) {
    v[device] = Doubles(arguments[ArgumentOf(fake, "v")]);
    count(device, arguments, outputs);
  };
  for (int i = 0; i < 2; ++i) ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
  EXPECT_NE(noise[0], noise[1]);
  EXPECT_EQ(v[1], std::vector<double>(kColumns, 4.0));

  runtime::VariableStore& store = replicator->variables();
  EXPECT_EQ(store.Get("steps").Span<int64_t>()[0], 2);
  const int64_t steps = 0;
  store.Set("steps", TensorView(DType::kI64, Shape({}), &steps));
  const std::vector<double> restored = {1.0, 2.0, 3.0};
  store.Set("v", TensorView(DType::kF64, Shape({kColumns}), restored.data()));
  ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
  EXPECT_EQ(noise[2], noise[0]);
  EXPECT_EQ(v[0], restored);
  EXPECT_EQ(v[1], restored);
  ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
  EXPECT_EQ(noise[3], noise[1]);
}

bool IsCleanup(const std::string& call) { return call.ends_with("_Destroy"); }

TEST(PjrtReplicatorTest, EachCallThatFailsIsNamedAndLeavesNothing) {
  const FakePlugin whole;
  RunTwoSteps(whole);
  const std::vector<std::string> calls = whole->calls;
  for (size_t i = 0; i < calls.size(); ++i) {
    if (IsCleanup(calls[i]) ||
        calls[i] == "PJRT_Executable_GetCompiledMemoryStats") {
      continue;
    }
    SCOPED_TRACE("call " + std::to_string(i) + ", " + calls[i]);
    const FakePlugin fake;
    fake->failing_call = i;
    EXPECT_THAT(MessageOf<DeviceError>([&] { RunTwoSteps(fake); }),
                AllOf(StartsWith(fake.file().string() + ": PJRT_"),
                      EndsWith(": INTERNAL: the call was told to fail")));
    EXPECT_EQ(fake->calls[i], calls[i]);
    EXPECT_THAT(fake->live, IsEmpty());
    EXPECT_THAT(fake->problems, IsEmpty());
  }
}

TEST(PjrtReplicatorTest, EachEventThatFailsIsNamedAndLeavesNothing) {
  const FakePlugin whole;
  RunTwoSteps(whole);
  ASSERT_GT(whole->num_events, 10U);
  for (size_t i = 0; i < whole->num_events; ++i) {
    SCOPED_TRACE("event " + std::to_string(i));
    const FakePlugin fake;
    fake->failing_event = i;
    EXPECT_THAT(MessageOf<DeviceError>([&] { RunTwoSteps(fake); }),
                EndsWith(": DATA_LOSS: the event was told to fail"));
    EXPECT_THAT(fake->live, IsEmpty());
    EXPECT_THAT(fake->problems, IsEmpty());
  }
}

// A transfer that fails costs a batch, and no variable: the next step begins
// where the last one ended, and draws what the failed one would have used.
TEST(PjrtReplicatorTest, GoesOnAfterATransferThatFailed) {
  std::vector<std::vector<double>> noise_by_run[2];
  for (const bool fails : {false, true}) {
    const FakePlugin fake;
    auto& noise = noise_by_run[fails ? 1 : 0];
    const auto replicator = MakeReplicator(ConfigOf(fake), /*seed=*/1);
    const auto input = replicator->MakeInput(Rows(4, 5, WholeValue));
    const auto step = replicator->Build(*input, NoisyStep);
    fake->run = CountingRun(fake, &noise);
    ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
    if (fails) {
      fake->failing_function = "PJRT_Client_BufferFromHostBuffer";
      EXPECT_THAT(MessageOf<DeviceError>(
                      [&] { static_cast<void>(step->Run(kNoWait)); }),
                  HasSubstr("PJRT_Client_BufferFromHostBuffer: INTERNAL"));
      fake->failing_function.clear();
    }
    ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
    EXPECT_EQ(VariablesOf<double>(*replicator).at("v"),
              std::vector<double>(kColumns, 4.0));
    EXPECT_THAT(fake->problems, IsEmpty());
  }
  EXPECT_EQ(noise_by_run[0], noise_by_run[1]);
}

TEST(PjrtReplicatorTest, RefusesToLookThroughTensors) {
  const FakePlugin fake;
  const auto replicator = MakeReplicator(ConfigOf(fake), /*seed=*/1);
  const auto input = replicator->MakeInput(Rows(4, 1, WholeValue));
  EXPECT_THAT(MessageOf<InvalidArgument>([&] {
                replicator->Build(*input, NoisyStep, {.check_finite = true});
              }),
              HasSubstr("hint: debug it with backend cpu"));
}

// --- configuration ---

std::string MessageOfConfig(const std::string& yaml) {
  return MessageOf<ConfigError>([&] {
    config::Reader reader(config::Document::FromText("run.yaml", yaml));
    ReplicationConfig::Read(reader);
    reader.Finish();
  });
}

TEST(PjrtConfigTest, TakesSingleAndInGraph) {
  EXPECT_EQ(MessageOfConfig("{backend: pjrt, pjrt: {plugin: a.so}}"),
            "no exception");
  EXPECT_EQ(MessageOfConfig("{strategy: in_graph, replicas: 4, backend: pjrt, "
                            "pjrt: {plugin: a.so, options: [a=1]}}"),
            "no exception");
}

TEST(PjrtConfigTest, RefusesWhatItCannotDo) {
  EXPECT_THAT(MessageOfConfig("{backend: pjrt}"),
              HasSubstr("backend: pjrt wants the file of a plugin"));
  for (const char* strategy :
       {"hogwild", "between_graph", "parameter_server"}) {
    EXPECT_THAT(
        MessageOfConfig(std::string("{replicas: 2, backend: pjrt, pjrt: "
                                    "{plugin: a.so}, strategy: ") +
                        strategy + "}"),
        HasSubstr(std::string("backend: pjrt is not for strategy ") +
                  strategy));
  }
  EXPECT_THAT(MessageOfConfig("{backend: pjrt, pjrt: {plugin: a.so}, "
                              "logical_devices: 2}"),
              HasSubstr("logical_devices: is not for backend pjrt"));
  EXPECT_THAT(MessageOfConfig("{backend: pjrt, pjrt: {plugin: a.so}, replicas: "
                              "2, strategy: in_graph, top_k: 0.1}"),
              HasSubstr("top_k: is not for backend pjrt"));
  EXPECT_THAT(MessageOfConfig("{pjrt: {plugin: a.so}}"),
              HasSubstr("pjrt.plugin: belongs to backend pjrt"));
  EXPECT_THAT(MessageOfConfig("{backend: pjrt, pjrt: {plugin: a.so, options: "
                              "[fast]}}"),
              HasSubstr("pjrt.options: 'fast' is not a plugin option"));
}

}  // namespace
}  // namespace replicant::replicator
