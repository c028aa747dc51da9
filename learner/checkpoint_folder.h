#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "core/runtime/checkpoint.h"
#include "core/runtime/variable_store.h"

namespace replicant::learner {

// The checkpoints of one run: folders "step-000000012000" (see
// runtime/checkpoint.h) of which the newest are kept.
//
// Thread-safety: one thread at a time; one process writes.
class CheckpointFolder {
 public:
  // Makes the folder. Throws IoError, and InvalidArgument unless `num_kept` is
  // at least 1.
  CheckpointFolder(std::filesystem::path folder, int num_kept);

  // Writes a checkpoint of info.step, unless there is one, then removes the
  // oldest beyond num_kept; one that cannot be removed is logged. Throws
  // IoError if it cannot be written; older ones are untouched then.
  void Save(const runtime::VariableStore& store,
            const runtime::CheckpointInfo& info);

  // Steps of the checkpoints that there are, ascending.
  std::vector<int64_t> Steps() const;
  std::filesystem::path PathOf(int64_t step) const;

  // Loads the newest checkpoint; std::nullopt if there is none. One that cannot
  // be read is logged and the one before it taken. Throws IoError, that of the
  // newest, if none can.
  std::optional<runtime::CheckpointInfo> LoadNewest(
      runtime::VariableStore& store) const;

 private:
  std::filesystem::path folder_;
  int num_kept_;
};

}  // namespace replicant::learner
