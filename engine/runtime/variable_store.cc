#include "engine/runtime/variable_store.h"

#include <fmt/format.h>

#include "base/error.h"

namespace replicant::runtime {

VariableStore::VariableStore(kernels::Backend& backend, uint64_t seed)
    : backend_(backend), seed_(seed), stream_(backend.CreateStream()) {}

void VariableStore::Declare(const graph::Graph& graph) {
  for (const graph::VariableSpec& spec : graph.variables()) {
    const auto found = variables_.find(spec.name);
    if (found == variables_.end()) continue;
    const graph::VariableSpec& existing = found->second.spec;
    if (existing.dtype != spec.dtype || existing.shape != spec.shape) {
      throw ShapeError(fmt::format(
          "VariableStore::Declare: variable '{}' is {}{}, but the graph needs "
          "{}{}",
          spec.name, DTypeName(existing.dtype), existing.shape.ToString(),
          DTypeName(spec.dtype), spec.shape.ToString()));
    }
  }
  // drawn before any is added, so that a failure leaves the store as it was
  std::map<std::string, Variable, std::less<>> added;
  for (const graph::VariableSpec& spec : graph.variables()) {
    if (Has(spec.name)) continue;
    HostTensor value(spec.dtype, spec.shape);
    if (spec.initializer) {
      RandomStream stream(seed_, "variable/" + spec.name);
      spec.initializer(stream, value.mutable_view());
    }
    Variable variable{.spec = spec,
                      .buffer = backend_.Allocate(value.size_bytes())};
    stream_->CopyToDevice(variable.buffer->data(), value.bytes().data(),
                          value.size_bytes());
    stream_->Synchronize();
    added.emplace(spec.name, std::move(variable));
  }
  variables_.merge(added);
}

void VariableStore::Share(const Variable& variable) {
  if (!variables_.emplace(variable.spec.name, variable).second) {
    throw InvalidArgument(fmt::format(
        "VariableStore::Share: '{}' already exists", variable.spec.name));
  }
}

bool VariableStore::Has(std::string_view name) const {
  return variables_.find(name) != variables_.end();
}

VariableStore::Variable& VariableStore::at(std::string_view name) {
  return const_cast<Variable&>(std::as_const(*this).at(name));
}

const VariableStore::Variable& VariableStore::at(std::string_view name) const {
  const auto found = variables_.find(name);
  if (found == variables_.end()) {
    throw InvalidArgument(
        fmt::format("VariableStore: no variable '{}' among its {} variables",
                    name, variables_.size()));
  }
  return found->second;
}

size_t VariableStore::size_bytes() const {
  size_t sum = 0;
  for (const auto& [name, variable] : variables_) {
    sum += variable.buffer->size_bytes();
  }
  return sum;
}

HostTensor VariableStore::Get(std::string_view name) const {
  const Variable& variable = at(name);
  HostTensor value(variable.spec.dtype, variable.spec.shape);
  stream_->CopyToHost(value.bytes().data(), variable.buffer->data(),
                      value.size_bytes());
  stream_->Synchronize();
  return value;
}

void VariableStore::Set(std::string_view name, TensorView value) {
  Variable& variable = at(name);
  if (value.dtype() != variable.spec.dtype ||
      value.shape() != variable.spec.shape) {
    throw ShapeError(fmt::format(
        "VariableStore::Set: variable '{}' is {}{}, got {}{}", name,
        DTypeName(variable.spec.dtype), variable.spec.shape.ToString(),
        DTypeName(value.dtype()), value.shape().ToString()));
  }
  stream_->CopyToDevice(variable.buffer->data(), value.data(),
                        value.size_bytes());
  stream_->Synchronize();
  variable.version.Add();
}

}  // namespace replicant::runtime
