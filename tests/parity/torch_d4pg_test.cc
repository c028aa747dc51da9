// D4PG's update against PyTorch's: all gradients of the first step, the losses
// and priorities of ten, and the variables after them.
#include <gtest/gtest.h>

#include <filesystem>

#include "agents/d4pg/step_graph.h"
#include "core/config/load.h"
#include "core/tensor/safetensors.h"
#include "tests/parity/golden_error.h"
#include "tests/parity/tested_backends.h"
#include "tools/probe/probe.h"

namespace replicant::learner {
namespace {

constexpr int64_t kSteps = 10;

struct Case {
  std::string golden;
  std::string backend;
  DType dtype;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const char* golden :
       {"state", "pixels", "shared_encoder", "prediction"}) {
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

// What each group may differ by, of its largest element.
//
// float64: gradients and losses are sums of at most a few hundred products,
// 1e3 * 2^-53; the clip factor of the gradients' global norm is f32, which Adam
// all but divides out, but for its epsilon: 1e-7 in variables that are near it.
// f32: the same sums, with the rounding of the inputs; Adam divides by
// sqrt(v), which lets a gradient that is near zero, and so mostly rounding,
// move its parameter by up to a learning rate (1e-3) per step.
double Tolerance(const std::string& group, DType dtype) {
  const bool is_f64 = dtype == DType::kF64;
  if (group == "gradients") return 1e3 * (is_f64 ? 0x1p-53 : 0x1p-24);
  if (group == "variables") return is_f64 ? 1e-7 : 1e-3;
  return is_f64 ? 1e-10 : 1e-5;
}

class TorchD4pgTest : public ::testing::TestWithParam<Case> {};

TEST_P(TorchD4pgTest, TenUpdatesAreThoseOfPyTorch) {
  const std::filesystem::path folder =
      std::filesystem::path(REPLICANT_SOURCE_DIR) / "tests/golden/torch";
  const std::string name = "d4pg_" + GetParam().golden;
  const auto config = config::Load<agents::d4pg::StepGraphConfig>(
                          config::Document::FromFile(folder / (name + ".yaml")))
                          .config;
  const nn::StepGraph workload =
      agents::d4pg::BuildStepGraph(config, GetParam().dtype);
  const auto backend = testing::MakeTestedBackend(GetParam().backend);
  const SafetensorsReader input(folder / (name + ".safetensors"));
  const probe::ProbeResult result =
      probe::RunProbe(workload, *backend, input, name, {.steps = kSteps});

  const SafetensorsReader expected(folder / (name + ".expected.safetensors"));
  testing::ErrorTable table;
  for (const SafetensorsInfo& info : expected.tensors()) {
    ASSERT_TRUE(result.contains(info.name)) << info.name;
    const double error = testing::RelativeError(
        result.at(info.name).view(), expected.Read(info.name).view());
    const std::string group = info.name.substr(0, info.name.find('/'));
    EXPECT_LE(error, Tolerance(group, GetParam().dtype)) << info.name;
    table.Add(group, "largest error", error);
  }
  // a gradient that PyTorch's side lacks would not have been compared
  for (const nn::NamedOutput& gradient : workload.gradients) {
    std::string dotted = gradient.name;
    std::ranges::replace(dotted, '/', '.');
    EXPECT_TRUE(expected.Has("gradients/" + dotted)) << dotted;
  }
  table.Print(NameOf(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Goldens, TorchD4pgTest, ::testing::ValuesIn(Cases()),
                         [](const ::testing::TestParamInfo<Case>& param) {
                           return NameOf(param.param);
                         });

}  // namespace
}  // namespace replicant::learner
