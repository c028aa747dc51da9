#include "engine/runtime/parameters.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"

namespace replicant::runtime {
namespace {

std::string TypeText(DType dtype, const Shape& shape) {
  return fmt::format("{}{}", DTypeName(dtype), shape.ToString());
}

}  // namespace

std::string EncodeVariables(const VariableStore& store,
                            const std::vector<std::string>& names,
                            const SafetensorsMetadata& metadata) {
  std::vector<HostTensor> values;
  std::vector<NamedTensorView> views;
  values.reserve(names.size());
  views.reserve(names.size());
  for (const std::string& name : names) {
    values.push_back(store.Get(name));
    views.push_back({name, values.back().view()});
  }
  return EncodeSafetensors(views, metadata);
}

std::map<std::string, HostTensor> ReadVariables(const SafetensorsReader& reader,
                                                const std::string& where,
                                                const VariableStore& store,
                                                Surplus surplus) {
  std::map<std::string, HostTensor> values;
  for (const SafetensorsInfo& tensor : reader.tensors()) {
    if (!store.Has(tensor.name)) {
      if (surplus == Surplus::kSkip) continue;
      throw IoError(
          fmt::format("{}: holds variable '{}', which the program lacks; hint: "
                      "it was written by another configuration",
                      where, tensor.name));
    }
    HostTensor value = reader.Read(tensor.name);
    const graph::VariableSpec& spec = store.at(tensor.name).spec;
    if (value.dtype() != spec.dtype || value.shape() != spec.shape) {
      throw IoError(fmt::format(
          "{}: variable '{}' is {}, but the program needs {}", where,
          tensor.name, TypeText(value.dtype(), value.shape()),
          TypeText(spec.dtype, spec.shape)));
    }
    values.emplace(tensor.name, std::move(value));
  }
  return values;
}

void SetVariables(std::span<const std::byte> bytes, const std::string& where,
                  VariableStore& store) {
  const SafetensorsReader reader(bytes, where);
  for (const auto& [name, value] : ReadVariables(reader, where, store)) {
    store.Set(name, value.view());
  }
}

}  // namespace replicant::runtime
