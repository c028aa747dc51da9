#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/config/reader.h"
#include "engine/runtime/checkpoint.h"
#include "engine/runtime/variable_store.h"

namespace replicant::learner {

// "manifest.yaml", the last file of a checkpoint to be written: the checkpoint
// is complete once this file exists.
struct Manifest {
  int64_t step = 0;
  // Names the parts stored outside the folder; unique in the run.
  uint64_t id = 0;
  // Training time of the run so far, seconds.
  double seconds = 0.0;
  // Passes over the data so far; nothing for endless data.
  std::optional<double> epochs;
  // Whether the input has a part: the replay's checkpoint of this id.
  bool has_input = false;

  static Manifest Read(config::Reader& reader);
};

// The checkpoints of one run, to be read: folders "step-000000012000"
// (engine/runtime/checkpoint.h). A checkpoint without a manifest is incomplete:
// its variables can be read, but no run resumes from it. Changes nothing on
// disk, so any process of any host may read while the run's learner works.
//
// Thread-safety: any number of threads.
class CheckpointReader {
 public:
  // A folder that does not exist has no checkpoints.
  explicit CheckpointReader(std::filesystem::path folder)
      : folder_(std::move(folder)) {}

  // Steps of the complete checkpoints, ascending. Throws IoError.
  std::vector<int64_t> Steps() const;
  bool IsComplete(int64_t step) const;
  std::filesystem::path PathOf(int64_t step) const;

  // Reads the manifest of a complete checkpoint. Throws IoError or ConfigError
  // if it cannot be read.
  Manifest ReadManifest(int64_t step) const;
  // Reads the manifest of the newest complete checkpoint, if there is one.
  // Throws IoError or ConfigError if it cannot be read.
  std::optional<Manifest> NewestManifest() const;

  // Loads the newest complete checkpoint that can be read, and logs those that
  // cannot; std::nullopt if there is none at all. If none can be read, throws
  // the IoError of the newest.
  std::optional<runtime::CheckpointInfo> LoadNewest(
      runtime::VariableStore& store) const;

 protected:
  // Complete and incomplete.
  std::vector<int64_t> AllSteps() const;
  std::filesystem::path ManifestOf(int64_t step) const;

  std::filesystem::path folder_;
};

// The same checkpoints for the process that writes them; the newest are kept.
//
// Thread-safety: one thread at a time; one process writes.
class CheckpointFolder : public CheckpointReader {
 public:
  // Makes the folder and removes files that a killed process of this host left
  // unfinished. Throws IoError, and InvalidArgument unless `num_kept` is at
  // least 1.
  CheckpointFolder(std::filesystem::path folder, int num_kept);

  // Writes the learner's part of the checkpoint of info.step, replacing an
  // incomplete one of this step. Throws IoError if it cannot be written or a
  // complete one exists; other checkpoints are untouched.
  void Save(const runtime::HostVariables& variables,
            const runtime::CheckpointInfo& info);
  // Removes that part, unless the checkpoint is complete.
  void Discard(int64_t step) const {
    if (!IsComplete(step)) Remove(step);
  }
  // Makes a complete checkpoint incomplete, because a part of it is damaged.
  // Throws IoError.
  void LeaveOut(int64_t step) const;
  // Leaves out those that are newer than the newest one whose parts can all be
  // read, and logs why, so that all parts of a run go back to one moment.
  // `find_damage` returns why a part beside the variables cannot be read, or
  // "". Returns ""; or, changing nothing, why the newest checkpoint cannot be
  // read, if none can. Throws IoError.
  [[nodiscard]] std::string LeaveOutDamaged(
      const std::function<std::string(const Manifest&)>& find_damage) const;
  // Writes the manifest; every part must be on disk. Then removes incomplete
  // checkpoints, and complete ones beyond num_kept, and logs failed removals.
  // Throws IoError if the manifest cannot be written.
  void Complete(const Manifest& manifest);

  // The id of the next checkpoint, above the ids of all manifests. A checkpoint
  // that did not complete leaves its id to the next one.
  uint64_t NextId() const;

 private:
  void Remove(int64_t step) const;
  std::string FindDamage(
      int64_t step,
      const std::function<std::string(const Manifest&)>& find_damage) const;

  int num_kept_;
};

}  // namespace replicant::learner
