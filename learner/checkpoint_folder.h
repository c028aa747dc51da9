#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "core/config/reader.h"
#include "core/runtime/checkpoint.h"
#include "core/runtime/variable_store.h"

namespace replicant::learner {

// What says that a checkpoint of a whole run is complete: the last of its files
// to be written, "manifest.yaml".
struct Manifest {
  int64_t step = 0;
  // What its parts outside the folder are called; unique in the run.
  uint64_t id = 0;
  // For how long the run has trained by then.
  double seconds = 0.0;
  // Whether the input has such a part: the replay's checkpoint of this id.
  bool has_input = false;

  static Manifest Read(config::Reader& reader);
};

// The checkpoints of one run: folders "step-000000012000" (see
// runtime/checkpoint.h) of which the newest are kept. One without a manifest
// is not complete: its variables can be looked at, but no run goes on from
// there.
//
// Thread-safety: one thread at a time; one process writes.
class CheckpointFolder {
 public:
  // Makes the folder. Throws IoError, and InvalidArgument unless `num_kept` is
  // at least 1.
  CheckpointFolder(std::filesystem::path folder, int num_kept);

  // Writes the learner's part of a checkpoint of info.step, in place of one
  // that is not complete. Throws IoError if it cannot be written, or there is a
  // complete one; the others are untouched then.
  void Save(const runtime::VariableStore& store,
            const runtime::CheckpointInfo& info);
  // Removes that part, unless the checkpoint is complete.
  void Discard(int64_t step) const {
    if (!IsComplete(step)) Remove(step);
  }
  // Has a complete checkpoint count as not complete, as when one of its parts
  // elsewhere turns out damaged. Throws IoError.
  void LeaveOut(int64_t step) const;
  // Every part is on the disk: writes the manifest, then removes the complete
  // ones beyond num_kept, and what is not complete; what cannot be removed is
  // logged. Throws IoError if it cannot be written.
  void Complete(const Manifest& manifest);

  // Steps of the complete checkpoints, ascending.
  std::vector<int64_t> Steps() const;
  bool IsComplete(int64_t step) const;
  std::filesystem::path PathOf(int64_t step) const;

  // Of a complete checkpoint. Throws IoError or ConfigError if it cannot be
  // read.
  Manifest ReadManifest(int64_t step) const;
  // Of the newest complete checkpoint. Throws IoError or ConfigError if it
  // cannot be read.
  std::optional<Manifest> NewestManifest() const;
  // Of the next checkpoint: no manifest has it. One that did not become
  // complete gives its id to the next.
  uint64_t NextId() const;

  // Loads the newest complete checkpoint; std::nullopt if there is none. One
  // that cannot be read is logged and the one before it taken. Throws IoError,
  // that of the newest, if none can.
  std::optional<runtime::CheckpointInfo> LoadNewest(
      runtime::VariableStore& store) const;

 private:
  // Complete or not.
  std::vector<int64_t> AllSteps() const;
  std::filesystem::path ManifestOf(int64_t step) const;
  void Remove(int64_t step) const;

  std::filesystem::path folder_;
  int num_kept_;
};

}  // namespace replicant::learner
