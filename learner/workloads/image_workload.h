#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "learner/data/images_config.h"
#include "learner/data/positioned_pipeline.h"
#include "learner/workload.h"
#include "learner/workloads/first_batch.h"
#include "replicator/replicator.h"

namespace replicant::learner {

// The images that a workload learns from.
struct ImageOptions {
  int64_t batch_size = 32;  // of all replicas
  int64_t side = 32;        // pixels
  int64_t num_classes = 10;
  uint64_t seed = 0;
  data::ImageInput input = {};
  // The model's counters of steps (nn::AddStepCounter()): each update that
  // learns from new batches advances one of them.
  std::vector<std::string> counters = {};
};

// The base of workloads that learn from images: the replicator, and the input
// with its position in a checkpoint. Every process reads its own rows of a
// batch. The first process's checkpoint has the number of batches, which gives
// the position of all processes; the others receive it before their first step,
// and the position in the cycle with it.
// Groups that do not wait for the first process's take it from the counters of
// the model, as if all groups had made as many updates.
//
// Thread-safety: as a workload.
class ImageWorkload : public Workload {
 public:
  std::string WaitReason() const override { return "images"; }
  double WaitSeconds() const override;
  runtime::VariableStore& variables() override {
    return replicator_->variables();
  }
  void Stop() override { replicator_->Stop(); }
  void SetShouldStop(const std::function<bool()>& should_stop) override {
    should_stop_ = should_stop;
  }
  // The number of batches taken.
  std::map<std::string, std::string> State() const override;
  void Restore(const std::map<std::string, std::string>& state) override;
  CheckpointedInput* input() override { return &batches_; }
  std::optional<double> NumEpochs() const override;
  // "batch": the first images of this process, as they enter the network.
  std::vector<Picture> TakePictures() override;

 protected:
  // Reads a whole number >= 0 from a checkpoint's state. Throws InvalidArgument
  // if there is none under `key`.
  static int64_t CountIn(const std::map<std::string, std::string>& state,
                         const std::string& key);

  // Throws what the image sources and Replicator::MakeInput() throw.
  ImageWorkload(std::unique_ptr<replicator::Replicator> replicator,
                const ImageOptions& images, graph::Precision precision);

  static Picture MakePicture(const std::string& name, const data::Image& image);

  // Sends the run's position to processes that lack it; called by every Step().
  // Returns kOk once that is done.
  NextResult AlignInputs(Clock::TimePoint deadline);
  bool should_stop() const { return should_stop_(); }
  // The next step's place in a cycle of several kinds of steps, which the
  // processes of a group make together.
  virtual int64_t cycle_position() const { return 0; }
  virtual void set_cycle_position(int64_t /*position*/) {}
  // Number of batches that the run has taken.
  int64_t num_batches() const;
  // The position of a group when all have taken `num_batches`.
  int64_t PositionOf(int group, int64_t num_batches) const {
    return (num_batches + num_groups_ - 1 - group) / num_groups_;
  }

  replicator::Replicator& replicator() { return *replicator_; }
  // Builds a step of these phases on the images, in the workload's precision;
  // `name` is runtime::CompileOptions::name. Throws what
  // Replicator::BuildJoint() throws.
  std::unique_ptr<replicator::Step> BuildStep(
      const std::vector<replicator::StepFn>& phases, const std::string& name) {
    return replicator_->BuildJoint(
        *input_, phases, {.name = name, .passes = {.precision = precision_}});
  }

 private:
  // The images of this process as checkpointed input. State() holds their
  // position, so StartSaving() has nothing to do.
  class Batches : public CheckpointedInput {
   public:
    explicit Batches(ImageWorkload* workload) : workload_(*workload) {}
    void SetLimit(int64_t num_batches) override {
      // steps under way would count twice
      if (workload_.replicator_->HasResults()) return;
      workload_.num_batches_left_ = num_batches;
    }
    void SetPaused(bool is_paused) override;
    bool IsDrained() const override;

   private:
    ImageWorkload& workload_;
  };

  // Builds place_step_.
  void BuildPlace(const std::vector<std::string>& counters);

  graph::Precision precision_;
  int64_t dataset_size_ = 0;  // 0: no epochs
  int64_t batch_size_ = 0;
  std::unique_ptr<replicator::Replicator> replicator_;
  // that steps may still use: replicas that do not wait for each other would
  // begin some that no step counts
  int64_t num_batches_left_ = std::numeric_limits<int64_t>::max();
  // by group, owned by input_
  std::map<int, FirstBatch*> images_;
  int num_groups_ = 1;
  int num_pipelines_ = 1;
  std::unique_ptr<replicator::Input> input_;
  // a step whose values are the place of the group's first process and the sum
  // of the counters; null where a process alone has all images
  std::unique_ptr<replicator::Input> place_input_;
  std::unique_ptr<replicator::Step> place_step_;
  bool is_aligned_ = false;
  std::function<bool()> should_stop_ = [] { return false; };
  Batches batches_{this};
};

}  // namespace replicant::learner
