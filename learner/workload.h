#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/runtime/variable_store.h"
#include "learner/checkpointed_input.h"
#include "replicator/input.h"

namespace replicant::learner {

using replicator::NextResult;

// A PNG of data that a model makes or sees.
struct Picture {
  std::string name;  // "samples"
  int height = 0;
  int width = 0;
  std::string png;
};

// A model in training, as the learner uses it: makes steps, holds the
// variables, and reports its scalars. A workload builds its step on a
// replicator (replicator/replicator.h). All workloads share one loop, with
// limits, checkpoints and logs (learner/learner.h).
//
// Thread-safety: only the thread that made the workload calls it.
class Workload {
 public:
  virtual ~Workload() = default;

  // Makes one training step; waits for its input until `deadline`. Unless it
  // returns kOk, no step was made.
  virtual NextResult Step(Clock::TimePoint deadline) = 0;

  // Number of steps of the run since the Step() before the last one, including
  // steps of processes that do not wait for this one.
  virtual int64_t NumNewSteps() const { return 1; }

  // Ends the run: in processes that train together with this one, Step()
  // returns kEnd from now on.
  virtual void Stop() {}

  // Lets a long evaluation within Step() end early, without scores, once
  // `should_stop` returns true. The learner ends then.
  virtual void SetShouldStop(const std::function<bool()>& /*should_stop*/) {}

  // Describes briefly the cause of Step()'s wait: "replay: 812 of 1000 items".
  virtual std::string WaitReason() const = 0;

  // Total time that Step() has waited for input so far, seconds.
  virtual double WaitSeconds() const = 0;

  // The state of the training; the learner counts the steps.
  virtual runtime::VariableStore& variables() = 0;

  // State besides the variables that a resume needs: counters, positions of
  // random streams and of the input. Restore() takes the result of State() and
  // throws InvalidArgument for an unusable one.
  virtual std::map<std::string, std::string> State() const { return {}; }
  virtual void Restore(const std::map<std::string, std::string>& /*state*/) {}

  // Scalars of the last step, for the curves, which show their means over an
  // interval: {"critic_loss", 1.25}. The scores of the last evaluation,
  // "evaluation_...", are among the scalars of every later step; the curves
  // show the last ones.
  virtual std::vector<std::pair<std::string, double>> Scalars() const = 0;

  // Values of the last step, by name, for histograms in the curves; valid until
  // the next Step().
  virtual std::vector<std::pair<std::string, std::span<const float>>>
  Histograms() const {
    return {};
  }

  // Number of environment frames behind the data so far; 0 without
  // environments.
  virtual int64_t NumFrames() const { return 0; }

  // Training steps for each agent step so far, after `num_steps` of them;
  // nothing without agents.
  virtual std::optional<double> ReplayRatio(int64_t /*num_steps*/) const {
    return std::nullopt;
  }

  // Passes over the data so far; nothing for endless data.
  virtual std::optional<double> NumEpochs() const { return std::nullopt; }

  // Names of the variables to publish during training, such as the policy that
  // the actors follow; none by default.
  virtual std::vector<std::string> PublishedVariables() const { return {}; }
  // The topic under which to publish them.
  virtual std::string PublishedTopic() const { return {}; }
  // Metadata to publish with them (engine/runtime/parameters.h).
  virtual std::map<std::string, std::string> PublishedMetadata() const {
    return {};
  }

  // Pictures made by the last step, for the curves and the run's folder.
  virtual std::vector<Picture> TakePictures() { return {}; }

  // Scores of the model on held-out data, by name: {"evaluation_accuracy",
  // 0.91}; empty if there are none. All processes of the run make the call
  // together. Throws what Step() throws.
  virtual std::vector<std::pair<std::string, double>> Evaluate() { return {}; }

  // Names of the variables that the trained model uses.
  virtual std::vector<std::string> ModelVariables() {
    return PublishedVariables();
  }

  // Adds the trained model for `batch_size` rows and returns its outputs by
  // name. It reads ModelVariables() by their names.
  virtual std::vector<std::pair<std::string, graph::Output>> BuildModel(
      graph::Graph& /*graph*/, int64_t /*batch_size*/) const {
    return {};
  }

  // A description of the network for models/features, a YAML file next to its
  // weights; empty for none.
  virtual std::string ModelDescription() const { return {}; }

  // Sets the initial values of a new training that differ from the variables'
  // initializers. Not called when a training resumes from a checkpoint. Throws
  // IoError.
  virtual void Begin() {}

  // The part of the input in the run's checkpoints; null if there is none.
  // Owned by the workload, and the same in every call.
  virtual CheckpointedInput* input() { return nullptr; }
};

}  // namespace replicant::learner
