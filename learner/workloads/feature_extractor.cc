#include "learner/workloads/feature_extractor.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "base/config/load.h"
#include "base/error.h"
#include "base/tensor/convert.h"
#include "base/tensor/safetensors.h"
#include "engine/graph/tensor_type.h"
#include "models/features/network.h"

namespace replicant::learner {
namespace {

std::string TensorName(std::string variable) {
  std::ranges::replace(variable, '/', '.');
  return variable;
}

// Throws IoError if there is none.
Shape ShapeIn(const SafetensorsReader& reader, std::string_view name,
              const std::filesystem::path& path) {
  const auto found =
      std::ranges::find(reader.tensors(), name, &SafetensorsInfo::name);
  if (found == reader.tensors().end()) {
    throw IoError(fmt::format("{}: no tensor '{}'", path.string(), name));
  }
  return found->shape;
}

}  // namespace

FeatureExtractor::FeatureExtractor(const std::filesystem::path& weights,
                                   const std::filesystem::path& description,
                                   int threads)
    : backend_(kernels::MakeBackend("cpu", {.num_threads = threads})) {
  const SafetensorsReader reader(weights);
  const auto config = config::Load<models::features::FeatureNetworkConfig>(
                          config::Document::FromFile(description))
                          .config;
  side_ = config.side();
  graph::Graph graph(/*seed=*/0);
  const graph::Output image =
      graph.Input("image", DType::kU8, Shape({kBatchSize, side_, side_, 3}));
  const models::features::Features built = models::features::BuildFeatures(
      graph, config,
      [&](const std::string& name) { return ShapeIn(reader, name, weights); },
      image);
  feature_size_ = built.features.shape()[1];
  runtime::PlanSpec spec{.outputs = {built.features}, .updates = {}};
  if (built.probabilities.is_valid()) {
    num_classes_ = built.probabilities.shape()[1];
    spec.outputs.push_back(built.probabilities);
  }
  variables_.emplace(*backend_, /*seed=*/0);
  plan_.emplace(graph, spec, *variables_);
  for (const auto& [name, variable] : variables_->variables()) {
    HostTensor value = reader.Read(TensorName(name));
    if (graph::IsFloating(value.dtype())) {
      value = ConvertFloating(value.view(), DType::kF32);
    }
    if (value.dtype() != DType::kF32 || value.shape() != variable.spec.shape) {
      throw IoError(
          fmt::format("{}: {}: want float32 {}, got {} {}", weights.string(),
                      TensorName(name), variable.spec.shape.ToString(),
                      DTypeName(value.dtype()), value.shape().ToString()));
    }
    variables_->Set(name, value.view());
  }
}

void FeatureExtractor::Extract(std::span<const uint8_t> rgb, int64_t side,
                               ImageFeatures* features) {
  const auto image_bytes = static_cast<size_t>(side * side * 3);
  const auto input_bytes = static_cast<size_t>(side_ * side_ * 3);
  const auto append = [](TensorView values, size_t rows,
                         std::vector<float>* all) {
    const auto row_size = static_cast<size_t>(values.shape()[1]);
    const auto span = values.Span<float>().first(rows * row_size);
    all->insert(all->end(), span.begin(), span.end());
  };
  const std::span<uint8_t> input = plan_->input("image").Span<uint8_t>();
  while (!rgb.empty()) {
    const size_t rows =
        std::min(static_cast<size_t>(kBatchSize), rgb.size() / image_bytes);
    for (size_t i = 0; i < rows; ++i) {
      const auto from = rgb.subspan(i * image_bytes, image_bytes);
      const auto to = input.subspan(i * input_bytes, input_bytes);
      if (side == side_) {
        std::ranges::copy(from, to.begin());
        continue;
      }
      const data::Image image{.size = {.height = side, .width = side},
                              .rgb = {from.begin(), from.end()}};
      const auto edge = static_cast<double>(side);
      resizer_.Resize(image, {.right = edge, .bottom = edge},
                      {.height = side_, .width = side_}, to);
    }
    plan_->Run();
    append(plan_->output(0), rows, &features->features);
    if (num_classes_ > 0) {
      append(plan_->output(1), rows, &features->probabilities);
    }
    rgb = rgb.subspan(rows * image_bytes);
  }
}

}  // namespace replicant::learner
