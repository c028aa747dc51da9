// Whole trainings on two devices of XLA's plugin for the CPU.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/fs.h"
#include "base/process.h"
#include "base/tensor/safetensors.h"

namespace replicant {
namespace {

using ::testing::HasSubstr;

constexpr const char* kTwoDevices =
    "learner.replication={strategy: in_graph, replicas: 2, backend: pjrt, "
    "pjrt: {plugin: " REPLICANT_PJRT_CPU_PLUGIN
    ", options: [cpu_device_count=2]}}";

class PjrtTrainingTest : public ::testing::Test {
 protected:
  PjrtTrainingTest() {
    // compiles faster
    setenv("XLA_FLAGS",
           "--xla_backend_optimization_level=0 "
           "--xla_llvm_disable_expensive_passes=true",
           /*overwrite=*/0);
  }

  // A shipped recipe, made small.
  CommandResult Run(const std::string& program, const std::string& name,
                    const std::string& replication, int steps,
                    std::vector<std::string> settings = {}) const {
    settings.insert(
        settings.end(),
        {"run.dir=" + (folder_.path() / name).string(), replication,
         "agent.networks.policy_hidden_sizes=[16]",
         "agent.networks.critic_hidden_sizes=[16]",
         fmt::format("learner.limits.max_steps={}", steps),
         "learner.batch_size=32", "actors.exploration.random_steps=50",
         "evaluation.enabled=false",
         "replay.tables.default.rate_limiter.min_size_to_sample=100"});
    std::vector<std::string> command = {
        program, "--config",
        std::string(REPLICANT_SOURCE_DIR) +
            "/configs/cartpole_swingup_state.yaml"};
    for (const std::string& setting : settings) {
      command.insert(command.end(), {"--set", setting});
    }
    return RunCommand({.command = command}, std::chrono::minutes(4));
  }
  CommandResult RunLockstep(const std::string& name,
                            const std::string& replication, int steps) const {
    return Run(REPLICANT_LOCKSTEP, name, replication, steps,
               {"learner.parameter_bind=\"\""});
  }
  std::filesystem::path Checkpoint(const std::string& name, int step) const {
    return folder_.path() / name / "checkpoints" /
           fmt::format("step-{:012}", step);
  }

  TemporaryFolder folder_;
};

// A checkpoint holds the values on the devices: variables, optimizer, counters
// of random numbers.
TEST_F(PjrtTrainingTest, ARunThatIsResumedEqualsOneThatWasNot) {
  for (const auto& [name, steps] :
       {std::pair("whole", 30), {"parts", 13}, {"parts", 30}}) {
    const CommandResult result = RunLockstep(name, kTwoDevices, steps);
    ASSERT_TRUE(result.status.ok()) << result.output;
  }
  for (const char* file : {"variables.safetensors", "lockstep.safetensors"}) {
    EXPECT_TRUE(ReadFile(Checkpoint("whole", 30) / file) ==
                ReadFile(Checkpoint("parts", 30) / file))
        << file;
  }

  // and the CPU backend makes of the same seed the same policy, to rounding
  const CommandResult result = RunLockstep(
      "cpu", "learner.replication={strategy: in_graph, replicas: 2}", 30);
  ASSERT_TRUE(result.status.ok()) << result.output;
  const SafetensorsReader device(Checkpoint("whole", 30) /
                                 "variables.safetensors");
  const SafetensorsReader cpu(Checkpoint("cpu", 30) / "variables.safetensors");
  double difference = 0.0;
  double norm = 0.0;
  ASSERT_EQ(device.tensors().size(), cpu.tensors().size());
  for (const SafetensorsInfo& info : cpu.tensors()) {
    const std::string& name = info.name;
    const HostTensor a = cpu.Read(name);
    if (a.dtype() != DType::kF32) continue;
    const HostTensor b = device.Read(name);
    for (size_t i = 0; i < a.Span<float>().size(); ++i) {
      const double x = a.Span<float>()[i];
      difference += std::pow(x - b.Span<float>()[i], 2);
      norm += x * x;
    }
  }
  EXPECT_GT(norm, 0.0);
  EXPECT_LE(std::sqrt(difference), 1e-4 * std::sqrt(norm));
}

// Actors act by the backend `cpu` on what the devices have learned.
TEST_F(PjrtTrainingTest, TrainsByProcesses) {
  const CommandResult result = Run(REPLICANT_FLEET, "fleet", kTwoDevices, 50);
  EXPECT_TRUE(result.status.ok()) << result.output;
  EXPECT_THAT(result.output, HasSubstr("updates             50 ("));
  EXPECT_TRUE(std::filesystem::exists(Checkpoint("fleet", 50)));
}

TEST_F(PjrtTrainingTest, AMistakeIsOneClearLineBeforeAnythingRuns) {
  const CommandResult file = Run(
      REPLICANT_FLEET, "x",
      "learner.replication={backend: pjrt, pjrt: {plugin: /no/such.so}}", 50);
  EXPECT_EQ(file.status.code, kExitConfig);
  EXPECT_THAT(file.output, HasSubstr("learner.replication.pjrt.plugin: "
                                     "/no/such.so: no such file"));
  const CommandResult strategy =
      Run(REPLICANT_FLEET, "x",
          "learner.replication={strategy: hogwild, replicas: 2, backend: pjrt, "
          "pjrt: {plugin: /no/such.so}}",
          50);
  EXPECT_EQ(strategy.status.code, kExitConfig);
  EXPECT_THAT(strategy.output,
              HasSubstr("learner.replication.backend: pjrt is not for strategy "
                        "hogwild"));
}

}  // namespace
}  // namespace replicant
