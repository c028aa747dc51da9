// The client against a plugin that records what it is asked for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/tensor/host_tensor.h"
#include "engine/pjrt/client.h"
#include "tests/support/fake_pjrt/fake_pjrt.h"
#include "tests/support/message_of.h"

namespace replicant::pjrt {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using testing::FakePlugin;
using testing::FakeTensor;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MessageOf;
using ::testing::StartsWith;

// v, x -> v (in its own memory), sum
constexpr const char* kModule = R"(
module @step attributes {mhlo.num_replicas = 2 : i32} {
  func.func public @main(%arg0: tensor<2x3xf32> {tf.aliasing_output = 0 : i32}, %arg1: tensor<4xi32>) -> (tensor<2x3xf32>, tensor<f32>) {
  }
})";

HostTensor Range(float first) {
  HostTensor tensor(DType::kF32, {2, 3});
  for (float& x : tensor.MutableSpan<float>()) x = first++;
  return tensor;
}

std::vector<float> Fetch(const Buffer& buffer, const Shape& shape) {
  HostTensor host(DType::kF32, shape);
  buffer.CopyToHost(host.mutable_view()).Await();
  return {host.Span<float>().begin(), host.Span<float>().end()};
}

// Two steps on two devices, with everything that the client calls.
void RunTwoSteps(const FakePlugin& fake) {
  const Client client(Plugin::Load(fake.file()), {{"memory", int64_t{5}}});
  const Executable step = client.Compile(
      kModule, {.device_ids = {client.device_id(0), client.device_id(1)}});
  const HostTensor first = Range(1.0F);
  const HostTensor batch(DType::kI32, {4});
  std::vector<Buffer> variables;
  for (int device = 0; device < 2; ++device) {
    Upload upload = client.CopyToDevice(first.view(), device);
    upload.read.Await();
    variables.push_back(std::move(upload.buffer));
  }
  for (int i = 0; i < 2; ++i) {
    std::vector<Upload> batches;
    batches.push_back(client.CopyToDevice(batch.view(), 0));
    batches.push_back(client.CopyToDevice(batch.view(), 1));
    Execution run = step.Execute({{&variables[0], &batches[0].buffer},
                                  {&variables[1], &batches[1].buffer}});
    for (Upload& upload : batches) upload.read.Await();
    for (Event& done : run.done) done.Await();
    EXPECT_THAT(Fetch(run.outputs[1][0], {2, 3}),
                ElementsAre(1, 2, 3, 4, 5, 6));
    EXPECT_THAT(Fetch(run.outputs[0][1], {}), ElementsAre(0));
    variables[0] = std::move(run.outputs[0][0]);
    variables[1] = std::move(run.outputs[1][0]);
  }
}

TEST(PjrtClientTest, ReadsPlatformAndDevices) {
  const FakePlugin fake;
  fake->num_devices = 3;
  const Client client(
      Plugin::Load(fake.file()),
      {ParseClientOption("name=a=b"), ParseClientOption("preallocate=false"),
       ParseClientOption("memory_fraction=0.5"), ParseClientOption("count=-4"),
       ParseClientOption("devices=0,"), ParseClientOption("ids=3,-1,2"),
       ParseClientOption("names=3,a"), ParseClientOption("none=,")});
  EXPECT_EQ(client.platform(), "fake");
  EXPECT_EQ(client.platform_version(), "version 1");
  ASSERT_EQ(client.num_devices(), 3);
  EXPECT_EQ(client.device_id(2), 12);
  EXPECT_EQ(client.device_kind(2), "fake device");
  EXPECT_THAT(fake->options,
              ElementsAre("name=a=b", "preallocate=false",
                          "memory_fraction=0.500000", "count=-4", "devices=[0]",
                          "ids=[3][-1][2]", "names=3,a", "none=,"));
}

TEST(PjrtClientTest, RefusesAnOptionWithoutAName) {
  EXPECT_THAT(MessageOf([] { ParseClientOption("=5"); }),
              HasSubstr("'=5' is not a plugin option"));
  EXPECT_THAT(MessageOf([] { ParseClientOption("devices"); }),
              HasSubstr("allowed: NAME=VALUE"));
}

TEST(PjrtClientTest, NamesAPlatformWithoutADevice) {
  const FakePlugin fake;
  fake->num_devices = 0;
  EXPECT_THAT(MessageOf([&] { Client client(Plugin::Load(fake.file())); }),
              EndsWith(": platform fake has no device"));
  EXPECT_THAT(fake->live, IsEmpty());
}

// Catches a type or an order of dimensions that gets lost on the way.
TEST(PjrtClientTest, BringsTensorsOfEveryTypeToADeviceAndBack) {
  const FakePlugin fake;
  const Client client(Plugin::Load(fake.file()));
  for (const DType dtype : kAllDTypes) {
    for (const Shape& shape :
         {Shape({}), Shape({3}), Shape({2, 0}), Shape({2, 3, 4})}) {
      HostTensor sent(dtype, shape);
      int byte = 0;
      for (std::byte& x : sent.bytes()) x = static_cast<std::byte>(byte++ % 2);
      const Upload upload = client.CopyToDevice(sent.view(), 0);
      HostTensor got(dtype, shape);
      upload.buffer.CopyToHost(got.mutable_view()).Await();
      EXPECT_TRUE(std::ranges::equal(got.bytes(), sent.bytes()))
          << DTypeName(dtype) << shape.ToString();
    }
  }
  EXPECT_THAT(fake->problems, IsEmpty());
}

// PJRT may read the host's memory until the event, and write it then: the fake
// does so as late as it may.
TEST(PjrtClientTest, WaitsForTransfersEvenIfNobodyElseDoes) {
  const FakePlugin fake;
  const Client client(Plugin::Load(fake.file()));
  auto sent = std::make_unique<HostTensor>(Range(7.0F));
  Upload upload = client.CopyToDevice(sent->view(), 0);
  // the destructor waits
  { const Event read = std::move(upload.read); }
  sent.reset();
  EXPECT_THAT(Fetch(upload.buffer, {2, 3}), ElementsAre(7, 8, 9, 10, 11, 12));

  HostTensor got(DType::kF32, {2, 3});
  Event copy = upload.buffer.CopyToHost(got.mutable_view());
  EXPECT_EQ(got.Span<float>()[0], 0.0F);
  // and so does an assignment
  copy = Event();
  EXPECT_EQ(got.Span<float>()[0], 7.0F);
}

TEST(PjrtClientTest, CompilesForTheGivenDevicesAndRunsThere) {
  const FakePlugin fake;
  fake->run = [](size_t device, const std::vector<FakeTensor>& arguments,
                 std::vector<FakeTensor>& outputs) {
    const float sum = 100.0F * static_cast<float>(device) +
                      static_cast<float>(arguments[1].dims[0]);
    std::memcpy(outputs[1].bytes.data(), &sum, sizeof(sum));
  };
  const Client client(Plugin::Load(fake.file()));
  const Executable step = client.Compile(kModule, {.device_ids = {11, 10}});
  EXPECT_THAT(fake->modules, ElementsAre(kModule));
  EXPECT_THAT(fake->compile_options,
              ElementsAre(Encode({.device_ids = {11, 10}})));
  EXPECT_THAT(step.outputs(),
              ElementsAre(Executable::OutputType{DType::kF32, {2, 3}},
                          Executable::OutputType{DType::kF32, {}}));
  ASSERT_TRUE(step.memory());
  EXPECT_EQ(step.memory()->temporary, 1000);

  const HostTensor first = Range(0.0F);
  const HostTensor batch(DType::kI32, {4});
  const Upload v0 = client.CopyToDevice(first.view(), 0);
  const Upload v1 = client.CopyToDevice(first.view(), 1);
  const Upload x = client.CopyToDevice(batch.view(), 0);
  const Execution run =
      step.Execute({{&v0.buffer, &x.buffer}, {&v1.buffer, &x.buffer}});
  EXPECT_THAT(Fetch(run.outputs[0][1], {}), ElementsAre(4));
  EXPECT_THAT(Fetch(run.outputs[1][1], {}), ElementsAre(104));
  EXPECT_THAT(fake->problems, IsEmpty());

  // the run has consumed the variable, and not the batch
  EXPECT_THAT(
      MessageOf<DeviceError>([&] {
        const Upload fresh = client.CopyToDevice(first.view(), 1);
        step.Execute({{&v0.buffer, &x.buffer}, {&fresh.buffer, &x.buffer}});
      }),
      EndsWith(": PJRT_LoadedExecutable_Execute: INVALID_ARGUMENT: "
               "argument 0 is no buffer any more"));
}

TEST(PjrtClientTest, NamesAModuleThatDoesNotCompile) {
  const FakePlugin fake;
  const Client client(Plugin::Load(fake.file()));
  EXPECT_EQ(MessageOf<DeviceError>([&] { client.Compile("nothing", {}); }),
            fake.file().string() +
                ": PJRT_Client_Compile: INVALID_ARGUMENT: this is no module");
}

// Known bytes: executable_build_options{device_ordinal: -1, num_replicas: 2,
// num_partitions: 1, device_assignment{replica_count: 2, computation_count: 1,
// computation_devices{replica_device_ids: [3, 300]}}}.
TEST(PjrtCompileOptionsTest, EncodesReplicasAndTheirDevices) {
  const std::string assignment = "\x08\x02\x10\x01\x1a\x05\x0a\x03\x03\xac\x02";
  const std::string build =
      "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x20\x02\x28\x01\x4a\x0b" +
      assignment;
  EXPECT_EQ(Encode({.device_ids = {3, 300}}), "\x1a\x1c" + build);
}

bool IsCleanup(const std::string& call) { return call.ends_with("_Destroy"); }

// A call that fails ends in an exception that names it, and nothing is left
// behind. A cleanup that fails has nobody to tell.
TEST(PjrtFailureTest, EachCallThatFailsIsNamedAndLeavesNothing) {
  const FakePlugin whole;
  RunTwoSteps(whole);
  const std::vector<std::string> calls = whole->calls;
  EXPECT_THAT(whole->live, IsEmpty());
  EXPECT_THAT(whole->problems, IsEmpty());
  std::set<std::string> failed;
  for (size_t i = 0; i < calls.size(); ++i) {
    SCOPED_TRACE("call " + std::to_string(i) + ", " + calls[i]);
    const FakePlugin fake;
    fake->failing_call = i;
    const std::string message =
        MessageOf<DeviceError>([&] { RunTwoSteps(fake); });
    ASSERT_GT(fake->calls.size(), i);
    ASSERT_EQ(fake->calls[i], calls[i]);
    // the plugin need not know how much memory a module needs
    if (!IsCleanup(calls[i]) &&
        calls[i] != "PJRT_Executable_GetCompiledMemoryStats") {
      EXPECT_THAT(message, StartsWith(fake.file().string() + ": PJRT_"));
      EXPECT_THAT(message, EndsWith(": INTERNAL: the call was told to fail"));
      // an event fails under the name of what it ends
      if (calls[i] != "PJRT_Event_Await") {
        EXPECT_THAT(message, HasSubstr(": " + calls[i] + ": "));
      }
      failed.insert(calls[i]);
    } else {
      EXPECT_EQ(message, "no exception");
    }
    EXPECT_THAT(fake->live, IsEmpty());
    EXPECT_THAT(fake->problems, IsEmpty());
  }
  // catches a walk that lost a kind of call
  EXPECT_EQ(failed.size(), 18U);
}

// A failure after the call appears where it is awaited, under the call's name.
TEST(PjrtFailureTest, EachEventThatFailsIsNamedAndLeavesNothing) {
  const FakePlugin whole;
  RunTwoSteps(whole);
  std::set<std::string> failed;
  for (size_t i = 0; i < whole->num_events; ++i) {
    SCOPED_TRACE("event " + std::to_string(i));
    const FakePlugin fake;
    fake->failing_event = i;
    const std::string message =
        MessageOf<DeviceError>([&] { RunTwoSteps(fake); });
    EXPECT_THAT(message, EndsWith(": DATA_LOSS: the event was told to fail"));
    const size_t begin = message.find(": ") + 2;
    failed.insert(message.substr(begin, message.find(": ", begin) - begin));
    EXPECT_THAT(fake->live, IsEmpty());
    EXPECT_THAT(fake->problems, IsEmpty());
  }
  EXPECT_THAT(failed, ElementsAre("PJRT_Buffer_ToHostBuffer",
                                  "PJRT_Client_BufferFromHostBuffer",
                                  "PJRT_LoadedExecutable_Execute"));
}

}  // namespace
}  // namespace replicant::pjrt
