// The losses of twenty updates in bf16 against PyTorch's autocast.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/tensor/safetensors.h"
#include "tests/parity/tested_backends.h"
#include "tests/parity/torch_goldens.h"
#include "tests/support/tensor_values.h"
#include "tools/probe/probe.h"
#include "tools/probe/workloads.h"

namespace replicant::learner {
namespace {

struct Case {
  std::string golden;
  std::string backend;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const char* golden :
       {"d4pg_state", "d4pg_pixels", "d4pg_pixels_and_state",
        "d4pg_shared_encoder", "d4pg_representation",
        "d4pg_representation_and_state", "resnet50_basic",
        "resnet50_bottleneck", "sngan_32", "sngan_64"}) {
    for (const std::string& backend : testing::TestedBackends()) {
      cases.push_back({golden, backend});
    }
  }
  return cases;
}

class TorchBF16Test : public ::testing::TestWithParam<Case> {};

TEST_P(TorchBF16Test, TwentyLossesAreAsNearToAutocastAsThatIsToF64) {
  const std::string& golden = GetParam().golden;
  const std::string& backend_name = GetParam().backend;
  const probe::ProbedWorkload::Built loaded =
      probe::FindProbedWorkload(golden.substr(0, golden.find('_')), "golden")
          .build(config::Document::FromFile(
                     testing::TorchGolden(golden + ".yaml")),
                 DType::kF32);
  const auto backend = testing::MakeTestedBackend(backend_name);
  const probe::ProbeResult result = probe::RunProbe(
      loaded.step, *backend,
      SafetensorsReader(testing::TorchGolden(golden + ".safetensors")), golden,
      {.steps = testing::kAutocastSteps, .precision = graph::Precision::kBF16});

  for (const probe::NamedOutput& loss : loaded.step.losses) {
    testing::ExpectLossNearAutocast(
        golden, loss.name,
        testing::ToDoubles(result.at("losses/" + loss.name).view()),
        backend_name);
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, TorchBF16Test, ::testing::ValuesIn(Cases()),
                         [](const ::testing::TestParamInfo<Case>& param) {
                           return param.param.golden + "_" +
                                  param.param.backend;
                         });

}  // namespace
}  // namespace replicant::learner
