// D4PG's update against PyTorch's: all gradients of the first step, the losses
// and priorities of ten or twenty, and the variables after them.
#include <gtest/gtest.h>

#include "base/config/load.h"
#include "base/tensor/safetensors.h"
#include "tests/parity/tested_backends.h"
#include "tests/parity/torch_goldens.h"
#include "tools/probe/d4pg_step.h"
#include "tools/probe/probe.h"

namespace replicant::learner {
namespace {

struct Case {
  std::string golden;
  std::string backend;
  DType dtype;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const char* golden :
       {"state", "pixels", "pixels_and_state", "shared_encoder",
        "representation", "representation_and_state"}) {
    cases.push_back({golden, "reference", DType::kF64});
    for (const std::string& backend : testing::TestedBackends()) {
      cases.push_back({golden, backend, DType::kF32});
    }
  }
  return cases;
}

std::string NameOf(const Case& c) {
  return fmt::format("d4pg_{}_{}_{}", c.golden, c.backend, DTypeName(c.dtype));
}

class TorchD4pgTest : public ::testing::TestWithParam<Case> {};

TEST_P(TorchD4pgTest, UpdatesAreThoseOfPyTorch) {
  const std::string name = "d4pg_" + GetParam().golden;
  const auto config =
      config::Load<probe::d4pg::StepGraphConfig>(
          config::Document::FromFile(testing::TorchGolden(name + ".yaml")))
          .config;
  const probe::StepGraph workload =
      probe::d4pg::BuildStepGraph(config, GetParam().dtype);
  const auto backend = testing::MakeTestedBackend(GetParam().backend);
  const SafetensorsReader input(testing::TorchGolden(name + ".safetensors"));
  const SafetensorsReader expected(
      testing::TorchGolden(name + ".expected.safetensors"));
  const int64_t num_steps =
      expected.Read("losses/critic_loss").shape().num_elements();
  const probe::ProbeResult result =
      probe::RunProbe(workload, *backend, input, name, {.steps = num_steps});

  testing::ErrorTable table;
  for (const char* group : {"gradients", "losses", "steps", "variables"}) {
    testing::ExpectNearGolden(result, group, expected, group,
                              testing::D4pgTolerance(group, GetParam().dtype),
                              table);
  }
  // a gradient that PyTorch's side lacks would not have been compared
  for (const probe::NamedOutput& gradient : workload.gradients) {
    std::string dotted = gradient.name;
    std::ranges::replace(dotted, '/', '.');
    EXPECT_TRUE(expected.Has("gradients/" + dotted)) << dotted;
  }
  for (const probe::NamedOutput& loss : workload.losses) {
    EXPECT_TRUE(expected.Has("losses/" + loss.name)) << loss.name;
  }
  table.Print(NameOf(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Goldens, TorchD4pgTest, ::testing::ValuesIn(Cases()),
                         [](const ::testing::TestParamInfo<Case>& param) {
                           return NameOf(param.param);
                         });

}  // namespace
}  // namespace replicant::learner
