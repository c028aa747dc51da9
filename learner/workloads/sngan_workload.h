#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "learner/workloads/image_scores.h"
#include "learner/workloads/image_steps.h"
#include "learner/workloads/image_workload.h"
#include "models/sngan/config.h"

namespace replicant::learner {

// Trains SN-GAN with the updates of models/sngan/update.h. A step is one update
// of the discriminator or, after discriminator_steps of them, one of the
// generator; or both on one batch (joint_updates). Both draw from one input;
// the generator uses only its labels.
class SnganWorkload : public ImageWorkload {
 public:
  // `batch_size` counts the rows of all replicas. Throws what ImageWorkload and
  // Replicator::Build() throw.
  SnganWorkload(const models::sngan::SnganConfig& config, int64_t batch_size,
                graph::Precision precision, uint64_t seed,
                std::unique_ptr<replicator::Replicator> replicator,
                const data::ImageInput& images = {});

  NextResult Step(Clock::TimePoint deadline) override;
  int64_t NumNewSteps() const override { return num_new_steps_; }
  // discriminator_loss and generator_loss, each from the last update in this
  // process, and the results of the last evaluation.
  std::vector<std::pair<std::string, double>> Scalars() const override;
  // evaluation_fid, evaluation_inception_score and evaluation_images, the
  // number of generated images; empty without evaluation_features, in processes
  // after the first, and for an evaluation that was stopped.
  std::vector<std::pair<std::string, double>> Evaluate() override;
  // Also "samples": a grid of generated images.
  std::vector<Picture> TakePictures() override;
  // The generator's variables, or their averages if there are any.
  std::vector<std::string> ModelVariables() override;
  // The generator: "z" [B, latent_size] and "label" [B] to "image"
  // [B, side, side, 3] in (-1, 1).
  std::vector<std::pair<std::string, graph::Output>> BuildModel(
      graph::Graph& graph, int64_t batch_size) const override;
  // Also the position in the cycle of updates.
  std::map<std::string, std::string> State() const override;
  void Restore(const std::map<std::string, std::string>& state) override;

 private:
  int64_t cycle_position() const override { return cycle_position_; }
  void set_cycle_position(int64_t position) override {
    cycle_position_ = position;
  }
  std::unique_ptr<replicator::Step> BuildUpdate(
      const models::sngan::SnganConfig& config, SnganNetwork network);
  // Generates images for latent vectors from a separate input.
  struct Sampler {
    std::unique_ptr<replicator::Input> input;
    std::unique_ptr<replicator::Step> step;
    // the group that makes the images of a Run(), the first that asks for its
    // latent vectors: another group's would come with the next Run()
    std::shared_ptr<std::optional<int>> turn =
        std::make_shared<std::optional<int>>();

    // Returns u8 [size, side, side, 3]; nothing without more latent vectors and
    // at the end of the training.
    std::vector<uint8_t> Run() const;
  };
  // `fill` sets z [size, latent_size] and the labels [size], the same on all
  // replicas; false: there are no more.
  Sampler BuildSampler(
      const models::sngan::SnganConfig& config, int64_t size,
      std::function<bool(std::span<float>, std::span<int32_t>)> fill);
  void BuildGrid(const models::sngan::SnganConfig& config, uint64_t seed);
  void BuildEvaluation(const models::sngan::SnganConfig& config, uint64_t seed,
                       const data::ImageInput& images);
  void DrawGrid();
  // Runs a step of this kind, regardless of the position in the cycle.
  NextResult RunStep(bool is_generator, Clock::TimePoint deadline);
  NextResult RunJointStep(Clock::TimePoint deadline);
  // Pictures and evaluations that are due after a step; the run had taken
  // `num_batches_before` batches when it began.
  void MakeWhatIsDue(int64_t num_batches_before);

  const models::sngan::SnganConfig config_;
  // a cycle has the steps of the discriminator's updates, then the steps of one
  // generator update
  const int64_t generator_begin_, cycle_length_;
  // null with joint updates
  std::unique_ptr<replicator::Step> discriminator_step_;
  std::unique_ptr<replicator::Step> generator_step_;
  std::unique_ptr<replicator::Step> joint_step_;  // null without
  const int64_t side_, sample_interval_, evaluation_interval_;
  const int64_t num_sample_rows_;  // of the grid: classes
  Sampler grid_;                   // empty without samples
  std::vector<Picture> pictures_;
  // none without evaluation_features
  std::optional<ImageScores> scores_;
  Sampler evaluation_;
  // number and classes of the images that evaluation_ makes next; none if the
  // evaluation stops
  int64_t first_evaluated_ = 0;
  std::vector<int32_t> evaluation_labels_;
  std::vector<std::pair<std::string, double>> evaluation_scalars_;
  int64_t cycle_position_ = 0;
  int64_t num_new_steps_ = 1;
  std::optional<double> discriminator_loss_, generator_loss_;
};

}  // namespace replicant::learner
