#include "tests/support/xla_runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "base/error.h"
#include "base/fs.h"
#include "base/process.h"
#include "base/tensor/safetensors.h"
#include "engine/runtime/executor.h"

namespace replicant::testing {
namespace {

constexpr std::string_view kVariable = "variable/";

void WriteRun(const std::filesystem::path& folder, const XlaRun& run) {
  MakeFolders(folder);
  for (size_t i = 0; i < run.modules.size(); ++i) {
    const std::string module = (folder / std::to_string(i)).string();
    AtomicWriteFile(module + ".mlir", run.modules[i]->text);
    AtomicWriteFile(module + ".mlir.json",
                    exporting::DescribeStableHlo(*run.modules[i]));
  }
  std::vector<NamedTensorView> tensors;
  for (const auto& [name, value] : run.variables) {
    tensors.push_back({fmt::format("{}{}", kVariable, name), value.view()});
  }
  std::string order;
  for (size_t step = 0; step < run.steps.size(); ++step) {
    order += fmt::format("{}\n", run.steps[step].module);
    for (const auto& [name, value] : run.steps[step].arguments) {
      tensors.push_back({fmt::format("{}/{}", step, name), value.view()});
    }
  }
  AtomicWriteFile(folder / "steps.txt", order);
  WriteSafetensors(folder / "in.safetensors", tensors);
}

XlaResult ReadResult(const std::filesystem::path& folder) {
  XlaResult result;
  const SafetensorsReader reader(folder / "out.safetensors");
  for (const SafetensorsInfo& info : reader.tensors()) {
    const size_t slash = info.name.find('/');
    const std::string name = info.name.substr(slash + 1);
    if (info.name.starts_with(kVariable)) {
      result.variables.emplace(name, reader.Read(info.name));
      continue;
    }
    const auto step = std::stoul(info.name.substr(0, slash));
    if (result.outputs.size() <= step) result.outputs.resize(step + 1);
    result.outputs[step].emplace(name, reader.Read(info.name));
  }
  return result;
}

}  // namespace

std::vector<XlaResult> RunXla(const std::vector<XlaRun>& runs) {
  const TemporaryFolder folder;
  std::vector<std::string> command = {
      REPLICANT_PYTHON, REPLICANT_SOURCE_DIR "/tests/support/run_stablehlo.py"};
  for (const XlaRun& run : runs) {
    const std::filesystem::path place = folder.path() / run.name;
    WriteRun(place, run);
    command.push_back(place.string());
  }
  const CommandResult ran =
      RunCommand({.command = command}, std::chrono::minutes(10));
  if (!ran.status.ok()) throw Error(ran.output);
  std::vector<XlaResult> results;
  results.reserve(runs.size());
  for (const XlaRun& run : runs) {
    results.push_back(ReadResult(folder.path() / run.name));
  }
  return results;
}

std::vector<HostTensor> Draw(const graph::Program& draws,
                             runtime::VariableStore& store,
                             const NamedTensors& inputs) {
  runtime::Executor plan(*draws.graph,
                         {.outputs = draws.outputs, .updates = draws.updates},
                         store);
  for (const std::string& name : plan.input_names()) {
    std::ranges::copy(inputs.at(name).bytes(), plan.input(name).data());
  }
  plan.Run();
  std::vector<HostTensor> numbers;
  numbers.reserve(plan.num_outputs());
  for (size_t i = 0; i < plan.num_outputs(); ++i) {
    numbers.push_back(HostTensor::Clone(plan.output(i)));
  }
  return numbers;
}

HostTensor Stack(const std::vector<TensorView>& tensors) {
  std::vector<int64_t> dims = {static_cast<int64_t>(tensors.size())};
  const auto one = tensors[0].shape().dims();
  dims.insert(dims.end(), one.begin(), one.end());
  HostTensor stacked(tensors[0].dtype(), Shape(std::span<const int64_t>(dims)));
  auto to = stacked.bytes().begin();
  for (const TensorView& tensor : tensors) {
    to = std::ranges::copy(tensor.bytes(), to).out;
  }
  return stacked;
}

}  // namespace replicant::testing
