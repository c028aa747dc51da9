#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "env/physics.h"
#include "env/specs.h"

namespace replicant::env {

// Receives the arrays of an observation from a task, in order. The same calls
// describe the observation (names and shapes) or fill the caller's buffer.
//
//   writer.Array("position", physics.qpos());
//   writer.Scalar("height", physics.BodyPosition(torso_)[2]);
//   writer.Begin("orientations");              // then element by element
//   for (...) writer.Append(...);
//
// Thread-safety: one thread at a time.
class ObservationWriter {
 public:
  // Records names and shapes.
  ObservationWriter() = default;
  // Fills `out`, which must have the recorded size.
  explicit ObservationWriter(std::span<double> out)
      : out_(out), is_recording_(false) {}

  // Starts an array. `row_size` > 0 makes it a matrix of rows of that size.
  void Begin(const char* name, int64_t row_size = 0) {
    if (is_recording_) Record(name, row_size);
  }
  void Append(double value) { Append(std::span<const double>(&value, 1)); }
  void Append(std::span<const double> values);
  void Array(const char* name, std::span<const double> values) {
    Begin(name);
    Append(values);
  }
  void Scalar(const char* name, double value);

  // The recorded names and shapes.
  ObservationSpec Spec() const;
  // Checks (aborts) that `out` was filled to its end.
  void Finish() const;

 private:
  struct Entry {
    std::string name;
    int64_t row_size;  // 0: one dimension; -1: a scalar
    int64_t size;
  };
  void Record(const char* name, int64_t row_size);

  std::span<double> out_;
  size_t position_ = 0;
  bool is_recording_ = true;
  std::vector<Entry> entries_;
};

// Defines an environment on a physics: the start of an episode, the
// observation, the reward and the end.
//
// A task keeps ids of the model's objects but no episode state. All changing
// state is in the physics, so that a restored state continues exactly.
//
// Thread-safety: as the environment that owns it.
class Task {
 public:
  virtual ~Task() = default;

  // Called once with the physics in its default pose. Looks up names, measures
  // the default pose, and sets or draws model parameters that stay fixed for
  // the life of the environment; a randomization of the model then begins from
  // these. Throws InvalidArgument if the model lacks an object.
  virtual void Bind(Physics& physics, RandomStream& random) = 0;

  // Draws the start of an episode. The physics is in its default pose; the
  // model is as the last episode left it. Derived quantities are updated after
  // the call. Throws Error if no start is found.
  virtual void InitializeEpisode(Physics& physics, RandomStream& random) = 0;

  // Writes the observation.
  virtual void Observe(const Physics& physics,
                       ObservationWriter& writer) const = 0;

  // The reward of the last control step.
  virtual double Reward(const Physics& physics) const = 0;

  // The last discount if the episode ends here. By default it continues until
  // the time limit.
  virtual std::optional<double> Termination(const Physics& physics) const;

  // Whether InitializeEpisode() changes height fields, textures or meshes, so
  // that renderers must load them again.
  virtual bool ResetChangesAssets() const { return false; }
};

}  // namespace replicant::env
