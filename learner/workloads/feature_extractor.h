#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/images/resize.h"
#include "engine/kernels/backend.h"
#include "engine/runtime/executor.h"
#include "engine/runtime/variable_store.h"

namespace replicant::learner {

// Outputs of a network for n images.
struct ImageFeatures {
  std::vector<float> features;       // [n, feature_size]
  std::vector<float> probabilities;  // [n, num_classes]; empty without logits
};

// Runs the network whose features score generated images, on the CPU.
//
// Thread-safety: one thread at a time.
class FeatureExtractor {
 public:
  // `weights` is a safetensors file of f32, `description` a YAML file
  // (models/features/config.h). Throws IoError for files that cannot be read or
  // lack a tensor, ConfigError for a description that does not fit.
  FeatureExtractor(const std::filesystem::path& weights,
                   const std::filesystem::path& description, int threads);

  // Appends the outputs for `rgb`, u8 [n, side, side, 3], resized to the
  // network's input size.
  void Extract(std::span<const uint8_t> rgb, int64_t side,
               ImageFeatures* features);

  int64_t feature_size() const { return feature_size_; }
  // 0 without logits.
  int64_t num_classes() const { return num_classes_; }

 private:
  static constexpr int64_t kBatchSize = 32;

  std::unique_ptr<kernels::Backend> backend_;
  std::optional<runtime::VariableStore> variables_;
  std::optional<runtime::Executor> plan_;
  int64_t side_ = 0, feature_size_ = 0, num_classes_ = 0;
  data::Resizer resizer_;
};

}  // namespace replicant::learner
