#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "core/replicator/replicator.h"
#include "learner/workload.h"
#include "learner/workloads/synthetic_images.h"

namespace replicant::learner {

// The base of workloads that learn from images: the replicator, and the input
// with its place in a checkpoint.
//
// Thread-safety: as a workload.
class ImageWorkload : public Workload {
 public:
  std::string WaitReason() const override { return "images"; }
  // Synthetic images are made in Step().
  double WaitSeconds() const override { return 0.0; }
  runtime::VariableStore& variables() override {
    return replicator_->variables();
  }
  void Stop() override { replicator_->Stop(); }
  // The number of batches taken; empty if another process takes them.
  std::map<std::string, std::string> State() const override;
  void Restore(const std::map<std::string, std::string>& state) override;
  CheckpointedInput* input() override { return &batches_; }

 protected:
  // Reads a whole number >= 0 from a checkpoint's state. Throws InvalidArgument
  // if there is none under `key`.
  static int64_t CountIn(const std::map<std::string, std::string>& state,
                         const std::string& key);

  // Throws what SyntheticImages and Replicator::MakeInput() throw.
  ImageWorkload(std::unique_ptr<replicator::Replicator> replicator,
                const SyntheticImagesOptions& images,
                graph::Precision precision);

  replicator::Replicator& replicator() { return *replicator_; }
  // Builds a step on the images in the workload's precision. Throws what
  // Replicator::Build() throws.
  std::unique_ptr<replicator::Step> BuildStep(
      const replicator::StepFn& step_fn) {
    return replicator_->Build(*input_, step_fn,
                              {.passes = {.precision = precision_}});
  }

 private:
  // The images of this process as checkpointed input. State() holds their
  // position, so StartSaving() has nothing to do.
  class Batches : public CheckpointedInput {
   public:
    explicit Batches(ImageWorkload* workload) : workload_(*workload) {}
    void SetPaused(bool is_paused) override;
    bool IsDrained() const override;

   private:
    ImageWorkload& workload_;
  };

  graph::Precision precision_;
  std::unique_ptr<replicator::Replicator> replicator_;
  // by group, owned by input_; empty if another process makes the images
  std::map<int, SyntheticImages*> images_;
  int num_groups_ = 1;
  std::unique_ptr<replicator::Input> input_;
  Batches batches_{this};
};

}  // namespace replicant::learner
