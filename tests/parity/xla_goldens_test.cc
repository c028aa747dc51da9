// Updates of D4PG, ResNet and SN-GAN as StableHLO modules on XLA's CPU
// device, against PyTorch's: gradients of the first step, losses and outputs of
// all, and the variables after them. One process of Python runs all modules.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/config/load.h"
#include "base/tensor/safetensors.h"
#include "engine/export/stablehlo.h"
#include "tests/parity/torch_goldens.h"
#include "tests/support/xla_runtime.h"
#include "tools/probe/probe.h"
#include "tools/probe/workloads.h"

namespace replicant::learner {
namespace {

using testing::NamedTensors;

std::string Dotted(std::string name) {
  std::ranges::replace(name, '/', '.');
  return name;
}

// The whole step of a golden.
probe::StepGraph StepOf(const std::string& golden) {
  const auto document =
      config::Document::FromFile(testing::TorchGolden(golden + ".yaml"));
  return probe::FindProbedWorkload(golden.substr(0, golden.find('_')), "golden")
      .build(document, DType::kF32)
      .step;
}

exporting::StableHloModule ModuleOf(const probe::StepGraph& step,
                                    graph::Precision precision) {
  std::vector<graph::Output> outputs;
  exporting::StableHloOptions options{.precision = precision};
  const auto add = [&](const char* group, const auto& named) {
    for (const probe::NamedOutput& output : named) {
      outputs.push_back(output.output);
      options.output_names.push_back(
          fmt::format("{}/{}", group, Dotted(output.name)));
    }
  };
  add("losses", step.losses);
  add("steps", step.outputs);
  add("gradients", step.gradients);
  return exporting::ToStableHlo(
      graph::ExtractProgram(*step.graph, outputs, step.updates), options);
}

// Row `row` of what is stored for several steps, as the module's argument.
HostTensor RowAs(const HostTensor& rows, int64_t row, DType dtype,
                 const Shape& shape) {
  const TensorView view = rows.view()[row % rows.shape()[0]];
  const HostTensor one =
      testing::Values(dtype, shape, testing::ToDoubles(view));
  return testing::Stack({one.view()});
}

// A golden on its way to XLA and back.
struct Training {
  Training(const std::string& golden, graph::Precision precision)
      : name(golden),
        step(StepOf(golden)),
        module(ModuleOf(step, precision)),
        expected(testing::TorchGolden(golden + ".expected.safetensors")) {}

  // As many as the golden has.
  int64_t num_steps() const {
    return expected.Read("losses/" + step.losses.at(0).name).shape()[0];
  }

  testing::XlaRun Run(int64_t count) const {
    const SafetensorsReader input(testing::TorchGolden(name + ".safetensors"));
    testing::XlaRun run{.name = name, .modules = {&module}};
    // the first values are the probe's
    const auto backend = kernels::MakeBackend("cpu");
    const probe::ProbeResult start =
        probe::RunProbe(step, *backend, input, name, {.steps = 0});
    for (const graph::VariableSpec& spec : step.graph->variables()) {
      run.variables.emplace(
          spec.name,
          HostTensor::Clone(start.at("variables/" + Dotted(spec.name)).view()));
    }
    for (int64_t s = 0; s < count; ++s) {
      testing::XlaStep made;
      for (const exporting::StableHloArgument& a : module.arguments) {
        if (a.kind != exporting::StableHloArgument::Kind::kInput) continue;
        made.arguments.emplace(a.name, RowAs(input.Read("batches/" + a.name), s,
                                             a.dtype, a.shape));
      }
      run.steps.push_back(std::move(made));
    }
    return run;
  }

  void Compare(const testing::XlaResult& result) const {
    probe::ProbeResult found;
    for (const auto& [variable, value] : result.variables) {
      found.emplace("variables/" + Dotted(variable),
                    HostTensor::Clone(value.view()[0]));
    }
    for (const auto& [output, value] : result.outputs[0]) {
      if (output.starts_with("gradients/")) {
        found.emplace(output, HostTensor::Clone(value.view()[0]));
        continue;
      }
      std::vector<TensorView> rows;
      rows.reserve(result.outputs.size());
      for (const NamedTensors& of_step : result.outputs) {
        rows.push_back(of_step.at(output).view()[0]);
      }
      found.emplace(output, testing::Stack(rows));
    }
    testing::ErrorTable table;
    for (const char* group : {"gradients", "losses", "steps", "variables"}) {
      const double tolerance =
          name.starts_with("d4pg")
              ? testing::D4pgTolerance(group, DType::kF32)
              : testing::ModelTolerance(group, DType::kF32);
      testing::ExpectNearGolden(found, group, expected, group, tolerance,
                                table);
    }
    table.Print(name);
  }

  std::string name;
  probe::StepGraph step;
  exporting::StableHloModule module;
  SafetensorsReader expected;
};

// Runs all trainings, for the goldens' numbers of steps if `num_steps` is
// nothing, and calls check(training, its result).
template <typename Check>
void RunAll(const std::vector<std::string>& goldens, graph::Precision precision,
            std::optional<int64_t> num_steps, const Check& check) {
  std::vector<Training> trainings;
  trainings.reserve(goldens.size());
  for (const std::string& golden : goldens) {
    trainings.emplace_back(golden, precision);
  }
  std::vector<testing::XlaRun> runs;
  runs.reserve(trainings.size());
  for (const Training& training : trainings) {
    runs.push_back(training.Run(num_steps.value_or(training.num_steps())));
  }
  const std::vector<testing::XlaResult> results = testing::RunXla(runs);
  for (size_t i = 0; i < trainings.size(); ++i) check(trainings[i], results[i]);
}

TEST(XlaGoldensTest, UpdatesAreThoseOfPyTorch) {
  RunAll({"d4pg_state", "d4pg_pixels", "d4pg_shared_encoder",
          "d4pg_representation", "resnet50_basic", "resnet50_bottleneck",
          "sngan_32", "sngan_64"},
         graph::Precision::kF32, /*num_steps=*/std::nullopt,
         [](const Training& training, const testing::XlaResult& result) {
           training.Compare(result);
         });
}

TEST(XlaGoldensTest, TwentyLossesInBF16AreNearAutocast) {
  RunAll({"d4pg_representation", "resnet50_basic", "sngan_32"},
         graph::Precision::kBF16, testing::kAutocastSteps,
         [](const Training& training, const testing::XlaResult& result) {
           for (const probe::NamedOutput& loss : training.step.losses) {
             std::vector<double> ours;
             ours.reserve(result.outputs.size());
             for (const NamedTensors& of_step : result.outputs) {
               ours.push_back(testing::ToDoubles(
                   of_step.at("losses/" + loss.name).view())[0]);
             }
             testing::ExpectLossNearAutocast(training.name, loss.name, ours,
                                             "xla");
           }
         });
}

}  // namespace
}  // namespace replicant::learner
