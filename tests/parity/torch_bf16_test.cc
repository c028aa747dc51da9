// The losses of twenty updates in bf16 against PyTorch's autocast.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "core/tensor/safetensors.h"
#include "learner/workloads/built_in.h"
#include "tests/parity/tested_backends.h"
#include "tests/support/tensor_values.h"
#include "tools/probe/probe.h"

namespace replicant::learner {
namespace {

constexpr int64_t kSteps = 20;

struct Case {
  std::string golden;
  std::string backend;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const char* golden :
       {"d4pg_state", "d4pg_pixels", "d4pg_shared_encoder", "d4pg_prediction",
        "resnet50_basic", "resnet50_bottleneck", "sngan_32", "sngan_64"}) {
    for (const std::string& backend : testing::TestedBackends()) {
      cases.push_back({golden, backend});
    }
  }
  return cases;
}

// Of the difference over all steps.
double RootMeanSquare(const std::vector<double>& a,
                      const std::vector<double>& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

class TorchBF16Test : public ::testing::TestWithParam<Case> {};

TEST_P(TorchBF16Test, TwentyLossesAreAsNearToAutocastAsThatIsToF64) {
  const std::string& golden = GetParam().golden;
  const std::string& backend_name = GetParam().backend;
  const std::filesystem::path folder =
      std::filesystem::path(REPLICANT_SOURCE_DIR) / "tests/golden/torch";
  const learner::StepGraphBuilder::Built loaded =
      learner::BuiltInWorkloads()
          .Get(golden.substr(0, golden.find('_')), "golden")
          .step_graph.build(
              config::Document::FromFile(folder / (golden + ".yaml")),
              DType::kF32);
  const auto backend = testing::MakeTestedBackend(backend_name);
  const probe::ProbeResult result = probe::RunProbe(
      loaded.step, *backend,
      SafetensorsReader(folder / (golden + ".safetensors")), golden,
      {.steps = kSteps, .precision = graph::Precision::kBF16});

  const SafetensorsReader expected(folder / "bf16_losses.safetensors");
  for (const nn::NamedOutput& loss : loaded.step.losses) {
    const auto read = [&](const char* kind) {
      return testing::ToDoubles(
          expected.Read(fmt::format("{}/{}/{}", golden, kind, loss.name))
              .view());
    };
    const std::vector<double> autocast = read("autocast");
    const std::vector<double> exact = read("f64");
    const std::vector<double> ours =
        testing::ToDoubles(result.at("losses/" + loss.name).view());
    // two that round in bf16, at places that are not all the same, are apart by
    // sqrt(2) of what one of them is from the exact one; the largest of the
    // cases is some twice the mean. 2^-8, a step of bf16, for a loss that
    // rounding happened not to touch.
    const double scale = RootMeanSquare(exact, std::vector(kSteps, 0.0));
    const double error = RootMeanSquare(autocast, exact);
    const double tolerance =
        2.0 * std::sqrt(2.0) * std::max(error, 0x1p-8 * scale);
    EXPECT_LE(RootMeanSquare(ours, autocast), tolerance) << loss.name;
    // nor may it be f32 that was computed: bf16 leaves its mark
    EXPECT_GE(RootMeanSquare(ours, exact), 1e-6 * scale) << loss.name;
    fmt::print(
        "{:20} {:10} {:20} to autocast {:.1e}, autocast to f64 {:.1e}, "
        "ours to f64 {:.1e} of {:.1e}\n",
        golden, backend_name, loss.name, RootMeanSquare(ours, autocast), error,
        RootMeanSquare(ours, exact), scale);
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, TorchBF16Test, ::testing::ValuesIn(Cases()),
                         [](const ::testing::TestParamInfo<Case>& param) {
                           return param.param.golden + "_" +
                                  param.param.backend;
                         });

}  // namespace
}  // namespace replicant::learner
