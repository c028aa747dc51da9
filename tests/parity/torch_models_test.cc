// The image models' updates against PyTorch's: all gradients of the first step,
// the losses and logits of ten, the small variables after them, and what
// evaluation makes of those.
#include <gtest/gtest.h>

#include <algorithm>
#include <span>

#include "base/tensor/safetensors.h"
#include "tests/parity/tested_backends.h"
#include "tests/parity/torch_goldens.h"
#include "tools/probe/probe.h"
#include "tools/probe/workloads.h"

namespace replicant::learner {
namespace {

constexpr int64_t kSteps = 10;

struct Case {
  std::string golden;
  std::string backend;
  DType dtype = DType::kF32;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const char* golden :
       {"resnet50_basic", "resnet50_bottleneck", "sngan_32", "sngan_64"}) {
    cases.push_back({golden, "reference", DType::kF64});
    for (const std::string& backend : testing::TestedBackends()) {
      cases.push_back({golden, backend, DType::kF32});
    }
  }
  return cases;
}

std::string NameOf(const Case& c) {
  return fmt::format("{}_{}_{}", c.golden, c.backend, DTypeName(c.dtype));
}

probe::ProbedWorkload::Built Load(const Case& c,
                                  const std::vector<std::string>& overrides) {
  return probe::FindProbedWorkload(c.golden.substr(0, c.golden.find('_')),
                                   "golden")
      .build(config::Document::FromFile(
                 testing::TorchGolden(c.golden + ".yaml"), overrides),
             c.dtype);
}

// The state after the last step with the golden's first batch, as an input of
// a probe.
std::string EvaluationInput(const probe::ProbeResult& result,
                            const SafetensorsReader& golden,
                            const probe::StepGraph& evaluation) {
  std::vector<NamedTensorView> tensors;
  for (const auto& [key, tensor] : result) {
    const bool is_state = key.starts_with("variables/");
    const bool is_known = std::ranges::any_of(
        evaluation.graph->variables(), [&](const graph::VariableSpec& spec) {
          std::string dotted = spec.name;
          std::ranges::replace(dotted, '/', '.');
          return key == "variables/" + dotted;
        });
    if (is_state && is_known) tensors.push_back({key, tensor.view()});
  }
  std::vector<HostTensor> batches;
  batches.reserve(golden.tensors().size());
  for (const SafetensorsInfo& info : golden.tensors()) {
    const bool is_wanted =
        info.name == "batches/z" || info.name == "batches/fake_label" ||
        (info.name.starts_with("batches/") && !golden.Has("batches/z"));
    if (!is_wanted) continue;
    batches.push_back(golden.Read(info.name));
    tensors.push_back({info.name, batches.back().view()});
  }
  return EncodeSafetensors(tensors);
}

class TorchModelsTest : public ::testing::TestWithParam<Case> {
 protected:
  TorchModelsTest()
      : backend_(testing::MakeTestedBackend(GetParam().backend)) {}

  // Holds what the probe gave against the golden's tensors of these groups.
  void Compare(const probe::ProbeResult& result,
               const std::string& golden_group, const std::string& group) {
    testing::ExpectNearGolden(
        result, group, expected_, golden_group,
        testing::ModelTolerance(golden_group, GetParam().dtype), table_);
  }

  testing::TestedBackend backend_;
  SafetensorsReader input_{
      testing::TorchGolden(GetParam().golden + ".safetensors")};
  SafetensorsReader expected_{
      testing::TorchGolden(GetParam().golden + ".expected.safetensors")};
  testing::ErrorTable table_;
};

TEST_P(TorchModelsTest, TenUpdatesAndEvaluationAreThoseOfPyTorch) {
  const probe::ProbedWorkload::Built training = Load(GetParam(), {});
  const probe::ProbeResult result = probe::RunProbe(
      training.step, *backend_, input_, GetParam().golden, {.steps = kSteps});
  for (const char* group : {"gradients", "losses", "steps", "variables"}) {
    Compare(result, group, group);
  }
  // a gradient that PyTorch's side lacks would not have been compared
  for (const probe::NamedOutput& gradient : training.step.gradients) {
    std::string dotted = gradient.name;
    std::ranges::replace(dotted, '/', '.');
    EXPECT_TRUE(expected_.Has("gradients/" + dotted)) << dotted;
  }

  const probe::ProbedWorkload::Built evaluation =
      Load(GetParam(), {"kind=evaluate"});
  const std::string input = EvaluationInput(result, input_, evaluation.step);
  const probe::ProbeResult evaluated = probe::RunProbe(
      evaluation.step, *backend_,
      SafetensorsReader(std::as_bytes(std::span(input)), "evaluation"),
      "evaluation", {});
  probe::ProbeResult rows;
  for (const auto& [name, tensor] : evaluated) {
    if (name.starts_with("steps/")) {
      rows.emplace(name, HostTensor::Clone(tensor.view()[0]));
    }
  }
  Compare(rows, "evaluation", "steps");
  table_.Print(NameOf(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Goldens, TorchModelsTest, ::testing::ValuesIn(Cases()),
                         [](const ::testing::TestParamInfo<Case>& param) {
                           return NameOf(param.param);
                         });

}  // namespace
}  // namespace replicant::learner
