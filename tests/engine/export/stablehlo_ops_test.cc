// Every op case of the backends' parity tests, forward and gradient, as a
// StableHLO module on XLA's CPU device: in f32 against the reference in f64,
// and in bf16 against the reference in bf16. One process runs all modules.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/kernels/backend.h"
#include "engine/runtime/variable_store.h"
#include "tests/engine/kernels/op_parity.h"
#include "tests/support/xla_runtime.h"

namespace replicant::exporting {
namespace {

using testing::CaseBuilder;
using testing::CaseResults;
using testing::OpCase;
using testing::XlaResult;
using testing::XlaRun;

// The case as one step of a module.
struct ModuleOfCase {
  StableHloModule module;
  XlaRun run;
};
ModuleOfCase ModuleOf(const OpCase& op_case, graph::Precision precision) {
  CaseBuilder builder = testing::BuilderFor(precision);
  const testing::CaseProgram built = testing::BuildCase(op_case, builder);
  StableHloOptions options{.name = "op", .precision = precision};
  for (size_t i = 0; i < built.outputs.size(); ++i) {
    options.output_names.push_back(std::to_string(i));
  }
  ModuleOfCase made{
      .module = ToStableHlo(
          graph::ExtractProgram(builder.graph(), built.outputs, built.updates),
          options),
      .run = {.name = op_case.name}};
  for (const graph::VariableSpec& spec : builder.graph().variables()) {
    HostTensor value(spec.dtype, spec.shape);
    RandomStream stream(/*seed=*/1, "variable/" + spec.name);
    if (spec.initializer) spec.initializer(stream, value.mutable_view());
    made.run.variables.emplace(spec.name, std::move(value));
  }
  testing::NamedTensors inputs;
  for (const auto& [name, value] : builder.values()) {
    inputs.emplace(name, HostTensor::Clone(value.view()));
  }
  const auto backend = kernels::MakeBackend("reference");
  runtime::VariableStore store(*backend, /*seed=*/1);
  const std::vector<HostTensor> draws =
      testing::Draw(made.module.draws, store, inputs);
  testing::XlaStep step;
  for (const StableHloArgument& argument : made.module.arguments) {
    if (argument.kind == StableHloArgument::Kind::kVariable) continue;
    const HostTensor& value = argument.kind == StableHloArgument::Kind::kDraw
                                  ? draws.at(argument.draw)
                                  : inputs.at(argument.name);
    step.arguments.emplace(argument.name, testing::Stack({value.view()}));
  }
  made.run.steps.push_back(std::move(step));
  return made;
}

// Outputs, then variables, as testing::RunCase() gives them.
CaseResults ResultsOf(const StableHloModule& module,
                      const testing::NamedTensors& variables,
                      const XlaResult& result) {
  CaseResults results;
  for (const StableHloResult& r : module.results) {
    if (r.kind == StableHloResult::Kind::kOutput) {
      results.Add(result.outputs.at(0).at(r.name).view()[0]);
    }
  }
  for (const auto& [name, first] : variables) {
    // one that the case does not touch is no argument
    const auto after = result.variables.find(name);
    results.Add(after == result.variables.end() ? first.view()
                                                : after->second.view()[0]);
  }
  return results;
}

// Larger cases are about the tiles and threads of our own backends.
constexpr int64_t kMaxSize = 20000;

int64_t LargestSize(const StableHloModule& module) {
  int64_t size = 0;
  for (const StableHloArgument& argument : module.arguments) {
    size = std::max(size, argument.shape.num_elements());
  }
  for (const StableHloResult& result : module.results) {
    size = std::max(size, result.shape.num_elements());
  }
  return size;
}

class StableHloOpsTest : public ::testing::TestWithParam<graph::Precision> {};

TEST_P(StableHloOpsTest, MatchTheReference) {
  std::vector<OpCase> cases;
  std::vector<ModuleOfCase> modules;
  for (const OpCase& op_case : testing::AllOpCases()) {
    if (!op_case.has_module) continue;
    ModuleOfCase made = ModuleOf(op_case, GetParam());
    if (LargestSize(made.module) > kMaxSize) continue;
    cases.push_back(op_case);
    modules.push_back(std::move(made));
  }
  std::vector<XlaRun> runs;
  for (ModuleOfCase& made : modules) {
    made.run.modules = {&made.module};
    runs.push_back(std::move(made.run));
  }
  const std::vector<XlaResult> results = testing::RunXla(runs);
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(cases[i].name);
    // a module adds a bias to a rounded product
    testing::ExpectMatchesReference(
        cases[i], {.off = {"fuse_epilogue"}, .precision = GetParam()},
        ResultsOf(modules[i].module, runs[i].variables, results[i]));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Precisions, StableHloOpsTest,
    ::testing::Values(graph::Precision::kF32, graph::Precision::kBF16),
    [](const ::testing::TestParamInfo<graph::Precision>& precision) {
      return precision.param == graph::Precision::kBF16 ? "bf16" : "f32";
    });

}  // namespace
}  // namespace replicant::exporting
