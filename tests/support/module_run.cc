#include "tests/support/module_run.h"

#include <algorithm>
#include <utility>

namespace replicant::testing {
namespace {

using Kind = exporting::StableHloArgument::Kind;

// One input of all replicas, [replicas, ...].
HostTensor Divide(const HostTensor& of_all,
                  const exporting::StableHloArgument& argument, int replicas) {
  std::vector<int64_t> dims = {replicas};
  dims.insert(dims.end(), argument.shape.dims().begin(),
              argument.shape.dims().end());
  HostTensor divided(argument.dtype, Shape(std::span<const int64_t>(dims)));
  auto to = divided.bytes().begin();
  while (to != divided.bytes().end()) {
    // the rows of all, or a scalar again and again
    to = std::ranges::copy(of_all.bytes(), to).out;
  }
  return divided;
}

}  // namespace

ModuleRun::ModuleRun(std::string name,
                     const std::vector<replicator::StableHloStep>& modules,
                     const NamedTensors& variables)
    : modules_(modules), backend_(kernels::MakeBackend("cpu")) {
  run_.name = std::move(name);
  for (const replicator::StableHloStep& step : modules) {
    run_.modules.push_back(&step.module);
    counters_.resize(step.draws.size());
    for (size_t r = 0; r < counters_.size(); ++r) {
      auto& store = counters_[r];
      if (!store) {
        store = std::make_unique<runtime::VariableStore>(*backend_, /*seed=*/0);
      }
      store->Declare(*step.draws[r].graph);
      for (const auto& [variable, of_draws] : store->variables()) {
        store->Set(variable, variables.at(variable).view());
      }
    }
  }
  for (const auto& [variable, value] : variables) {
    run_.variables.emplace(variable, HostTensor::Clone(value.view()));
  }
}

void ModuleRun::AddStep(size_t module, const NamedTensors& inputs) {
  const replicator::StableHloStep& step = modules_[module];
  std::vector<std::vector<HostTensor>> draws;
  draws.reserve(step.draws.size());
  for (size_t r = 0; r < step.draws.size(); ++r) {
    draws.push_back(Draw(step.draws[r], *counters_[r], inputs));
  }
  XlaStep made{.arguments = {}, .module = module};
  for (const exporting::StableHloArgument& a : step.module.arguments) {
    if (a.kind == Kind::kInput) {
      made.arguments.emplace(
          a.name, Divide(inputs.at(a.name), a, step.module.num_replicas));
    } else if (a.kind == Kind::kDraw) {
      std::vector<TensorView> of_replicas;
      of_replicas.reserve(draws.size());
      for (const auto& own : draws) of_replicas.push_back(own[a.draw].view());
      made.arguments.emplace(a.name, Stack(of_replicas));
    }
  }
  run_.steps.push_back(std::move(made));
}

NamedTensors ValuesOf(const runtime::VariableStore& store) {
  NamedTensors values;
  for (const auto& [name, variable] : store.variables()) {
    values.emplace(name, store.Get(name));
  }
  return values;
}

}  // namespace replicant::testing
