#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "replay/store/frame_store.h"

namespace replicant::replay {

// How a table makes items from steps.
struct NStepConfig {
  int64_t n_step = 1;      // n, in [1, kMaxNStep]
  double discount = 0.99;  // gamma, in [0, 1]
  int64_t stack = 1;       // frames of one stacked observation, >= 1
};

// One n-step transition: the groups that hold it, and its sums.
//
//   R = sum_{i<k} (prod_{j<i} gamma d_{t+1+j}) r_{t+1+i}
//   D =  prod_{j<k} gamma d_{t+1+j}
//
// with k = min(n, T - t); the learner bootstraps with D at o_{t+k}. A truncated
// episode bootstraps (its last d is 1), a terminated one does not (0).
struct NStepItem {
  StoredGroup* first = nullptr;   // holds o_{max(0, t - stack + 1)}
  int64_t num_groups = 0;         // from `first` to the one that holds o_{t+k}
  int64_t step = 0;               // t
  int64_t n = 0;                  // k
  float reward = 0.0f;            // R
  float discount = 0.0f;          // D
  std::optional<float> priority;  // the writer's for step t
};

// Makes the items of the episodes of one writer for one table.
//
// The assembler holds a use of each group that a future item needs.
//
// Thread-safety: none of its own; the shard's lock guards it.
class NStepAssembler {
 public:
  // Throws InvalidArgument for settings outside their range. `store` outlives
  // this object.
  NStepAssembler(const NStepConfig& config, FrameStore* store);
  ~NStepAssembler() { Reset(); }
  NStepAssembler(NStepAssembler&& other) noexcept;
  NStepAssembler& operator=(NStepAssembler&&) = delete;

  // Appends to `items`, in the order of t, every item that `group` completes:
  // those whose o_{t+n} it brings, and all the rest if it ends the episode.
  // Each item has a use of each of its groups; the item's owner releases them
  // (FrameStore::ReleaseRange).
  // Precondition: the group begins an episode, or continues the one that is
  // open (checked; aborts).
  void Append(StoredGroup& group, std::vector<NStepItem>* items);

  // Forgets an open episode, for example because its writer is gone.
  void Reset();

  // Number of steps that are in no item yet.
  int64_t num_open_steps() const;

  // --- for a checkpoint ---

  // The groups held, oldest first, and the t of the next item.
  const std::vector<StoredGroup*>& open_groups() const { return groups_; }
  int64_t next_step() const { return next_step_; }
  // Goes on with an open episode. Precondition: no episode is open.
  void Restore(const std::vector<StoredGroup*>& groups, int64_t next_step);

 private:
  void AddGroup(StoredGroup& group);
  NStepItem MakeItem(int64_t n) const;
  // Releases the groups that the items from next_step_ on do not need.
  void DropOldGroups();
  int64_t WindowBegin(int64_t step) const;

  NStepConfig config_;
  FrameStore* store_;
  // The groups that future items need; empty between episodes.
  std::vector<StoredGroup*> groups_;
  int64_t next_step_ = 0;
};

}  // namespace replicant::replay
