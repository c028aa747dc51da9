#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "learner/workloads/image_steps.h"
#include "learner/workloads/image_workload.h"
#include "models/sngan/config.h"

namespace replicant::learner {

// Trains SN-GAN by the updates of sngan/update.h: a step is one update of the
// discriminator or, after discriminator_steps of them, one of the generator.
// Both draw from one input; the generator uses its labels only.
class SnganWorkload : public ImageWorkload {
 public:
  // `batch_size` is that of all replicas. Throws what ImageWorkload and
  // Replicator::Build() throw.
  SnganWorkload(const models::sngan::SnganConfig& config, int64_t batch_size,
                graph::Precision precision, uint64_t seed,
                std::unique_ptr<replicator::Replicator> replicator,
                const data::ImageInput& images = {});

  NextResult Step(Clock::TimePoint deadline) override;
  int64_t NumNewSteps() const override { return num_new_steps_; }
  // discriminator_loss and generator_loss, each from the last update in this
  // process.
  std::vector<std::pair<std::string, double>> Scalars() const override;
  // "samples": a grid of generated images.
  std::vector<Picture> TakePictures() override;
  // The generator's.
  std::vector<std::string> ModelVariables() const override;
  // Also the position in the cycle of updates.
  std::map<std::string, std::string> State() const override;
  void Restore(const std::map<std::string, std::string>& state) override;

 private:
  std::unique_ptr<replicator::Step> BuildUpdate(
      const models::sngan::SnganConfig& config, SnganNetwork network);
  void BuildSamples(const models::sngan::SnganConfig& config, uint64_t seed);
  void DrawSamples();
  // Runs a step of this kind, whatever comes next in the cycle.
  NextResult RunStep(bool is_generator, Clock::TimePoint deadline);

  // a cycle is the steps of the discriminator's updates, then those of one
  // update of the generator
  const int64_t generator_begin_, cycle_length_;
  std::unique_ptr<replicator::Step> discriminator_step_;
  std::unique_ptr<replicator::Step> generator_step_;
  const int64_t side_, sample_interval_;
  const int64_t num_sample_rows_;  // of the grid: classes
  // null without samples
  std::unique_ptr<replicator::Input> sample_input_;
  std::unique_ptr<replicator::Step> sample_step_;
  std::vector<Picture> pictures_;
  int64_t cycle_position_ = 0;
  int64_t num_new_steps_ = 1;
  std::vector<std::string> model_variables_;
  std::optional<double> discriminator_loss_, generator_loss_;
};

}  // namespace replicant::learner
