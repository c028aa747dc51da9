// The image models' updates against PyTorch's: all gradients of the first step,
// the losses and logits of ten, the small variables after them, and what
// evaluation makes of those.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <span>

#include "core/tensor/safetensors.h"
#include "learner/workloads/built_in.h"
#include "tests/parity/golden_error.h"
#include "tests/parity/tested_backends.h"
#include "tools/probe/probe.h"

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

std::filesystem::path Golden(const std::string& file) {
  return std::filesystem::path(REPLICANT_SOURCE_DIR) / "tests/golden/torch" /
         file;
}

learner::StepGraphBuilder::Built Load(
    const Case& c, const std::vector<std::string>& overrides) {
  return learner::BuiltInWorkloads()
      .Get(c.golden.substr(0, c.golden.find('_')), "golden")
      .step_graph.build(
          config::Document::FromFile(Golden(c.golden + ".yaml"), overrides),
          c.dtype);
}

// The state after the last step with the golden's first batch, as an input of
// a probe.
std::string EvaluationInput(const probe::ProbeResult& result,
                            const SafetensorsReader& golden,
                            const nn::StepGraph& evaluation) {
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
    const double largest = LargestOf(golden_group);
    for (const SafetensorsInfo& info : expected_.tensors()) {
      if (!info.name.starts_with(golden_group + "/")) continue;
      const std::string name = group + info.name.substr(golden_group.size());
      ASSERT_TRUE(result.contains(name)) << name;
      const HostTensor wanted = expected_.Read(info.name);
      double error =
          testing::RelativeError(result.at(name).view(), wanted.view());
      // a gradient that is zero but for rounding, as that of a bias before a
      // norm, is held against the others
      const double own = testing::LargestElement(wanted.view());
      if (own < 1e-9 * largest) error *= own / largest;
      EXPECT_LE(error, Tolerance(golden_group)) << info.name;
      table_.Add(golden_group, "largest error", error);
    }
  }

  double LargestOf(const std::string& golden_group) const {
    double largest = 0.0;
    for (const SafetensorsInfo& info : expected_.tensors()) {
      if (!info.name.starts_with(golden_group + "/")) continue;
      largest = std::max(
          largest, testing::LargestElement(expected_.Read(info.name).view()));
    }
    return largest;
  }

  // What each group may differ by, of its largest element.
  //
  // Gradients: the networks are narrow and their norms see few elements, so
  // that each of up to 53 norms makes rounding errors a little larger; PyTorch
  // in f32 differs from itself in f64 by up to 2e-4.
  // After ten steps, f32: rounding errors have gone through ten updates; and
  // Adam makes the rounding error of a gradient that is zero (a bias before a
  // norm) a step of a learning rate, which nothing but the running mean after
  // it notices. f64: how far running statistics move is f32 in our graphs.
  double Tolerance(const std::string& group) const {
    const bool is_f64 = GetParam().dtype == DType::kF64;
    if (group == "gradients") return is_f64 ? 1e-11 : 1e-3;
    if (group == "losses" || group == "steps") return is_f64 ? 1e-11 : 1e-2;
    return is_f64 ? 3e-7 : 3e-2;
  }

  testing::TestedBackend backend_;
  SafetensorsReader input_{Golden(GetParam().golden + ".safetensors")};
  SafetensorsReader expected_{
      Golden(GetParam().golden + ".expected.safetensors")};
  testing::ErrorTable table_;
};

TEST_P(TorchModelsTest, TenUpdatesAndEvaluationAreThoseOfPyTorch) {
  const learner::StepGraphBuilder::Built training = Load(GetParam(), {});
  const probe::ProbeResult result = probe::RunProbe(
      training.step, *backend_, input_, GetParam().golden, {.steps = kSteps});
  for (const char* group : {"gradients", "losses", "steps", "variables"}) {
    Compare(result, group, group);
  }
  // a gradient that PyTorch's side lacks would not have been compared
  for (const nn::NamedOutput& gradient : training.step.gradients) {
    std::string dotted = gradient.name;
    std::ranges::replace(dotted, '/', '.');
    EXPECT_TRUE(expected_.Has("gradients/" + dotted)) << dotted;
  }

  const learner::StepGraphBuilder::Built evaluation =
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
