#include "learner/workloads/model_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/tensor/convert.h"
#include "base/tensor/safetensors.h"
#include "engine/graph/tensor_type.h"
#include "engine/nn/optimizers.h"

namespace replicant::learner {
namespace {

// The scope of averages, with its slash.
const std::string& AverageScope() {
  static const std::string scope = fmt::format("{}/", nn::kAverageScope);
  return scope;
}

bool IsAverage(const std::string& name) {
  return name.starts_with(AverageScope());
}

std::string TorchName(std::string name) {
  if (IsAverage(name)) name.erase(0, AverageScope().size());
  std::ranges::replace(name, '/', '.');
  return name;
}

}  // namespace

std::vector<std::string> AveragesIn(std::vector<std::string> names) {
  if (std::ranges::any_of(names, IsAverage)) {
    std::erase_if(names,
                  [](const std::string& name) { return !IsAverage(name); });
  }
  return names;
}

void ReadModel(const std::filesystem::path& path,
               const std::vector<std::string>& names,
               runtime::VariableStore* store) {
  const SafetensorsReader reader(path);
  std::vector<HostTensor> tensors;
  for (const std::string& name : names) {
    const graph::VariableSpec& spec = store->at(name).spec;
    tensors.push_back(reader.Read(TorchName(name)));
    HostTensor& tensor = tensors.back();
    if (spec.dtype == DType::kF32 && graph::IsFloating(tensor.dtype())) {
      tensor = ConvertFloating(tensor.view(), DType::kF32);
    }
    if (tensor.dtype() != spec.dtype || tensor.shape() != spec.shape) {
      throw IoError(fmt::format(
          "{}: {}: want {} {}, got {} {}", path.string(), TorchName(name),
          DTypeName(spec.dtype), spec.shape.ToString(),
          DTypeName(tensor.dtype()), tensor.shape().ToString()));
    }
  }
  for (size_t i = 0; i < names.size(); ++i) {
    store->Set(names[i], tensors[i].view());
  }
}

void WriteModel(const std::filesystem::path& path,
                const std::vector<std::string>& names, int64_t step,
                const runtime::VariableStore& store) {
  std::vector<std::pair<std::string, HostTensor>> tensors;
  for (const std::string& name : names) {
    tensors.emplace_back(TorchName(name), store.Get(name));
    constexpr std::string_view kMean = "running_mean";
    if (!name.ends_with(kMean)) continue;
    HostTensor count(DType::kI64, Shape({}));
    count.MutableSpan<int64_t>()[0] = step;
    tensors.emplace_back(TorchName(name.substr(0, name.size() - kMean.size())) +
                             "num_batches_tracked",
                         std::move(count));
  }
  std::vector<NamedTensorView> views;
  for (const auto& [name, tensor] : tensors) {
    views.push_back({name, tensor.view()});
  }
  WriteSafetensors(path, views, {{"format", "pt"}});
}

}  // namespace replicant::learner
