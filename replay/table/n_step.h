#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "replay/store/frame_store.h"

namespace replicant::replay {

// How a table makes items of steps.
struct NStepConfig {
  int64_t n_step = 1;      // n, in [1, kMaxNStep]
  double discount = 0.99;  // gamma, in [0, 1]
  int64_t stack = 1;       // frames of one stacked observation, >= 1
};

// Where the parts of one n-step transition lie, and its sums.
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
// It holds a use of each group that an item to come needs.
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

  // Appends to `items`, in the order of t, every item that is complete with
  // `group`: those whose o_{t+n} has come, and if the group ends the episode
  // all that are left. Each item comes with a use of each of its groups, which
  // whoever holds the item releases (FrameStore::ReleaseRange).
  // Precondition: the group begins an episode, or continues the one that is
  // open (checked; aborts).
  void Append(StoredGroup& group, std::vector<NStepItem>* items);

  // Forgets an open episode, as when its writer is gone.
  void Reset();

  // Steps that have come and are in no item yet.
  int64_t num_open_steps() const;

  // --- for a checkpoint ---

  // The groups held, oldest first, and the t of the next item.
  const std::vector<StoredGroup*>& open_groups() const { return groups_; }
  int64_t next_step() const { return next_step_; }
  // Takes up an open episode again. Precondition: nothing is open.
  void Restore(const std::vector<StoredGroup*>& groups, int64_t next_step);

 private:
  void AddGroup(StoredGroup& group);
  NStepItem MakeItem(int64_t n) const;
  // Releases what the items from next_step_ on do not need.
  void DropOldGroups();
  int64_t WindowBegin(int64_t step) const;

  NStepConfig config_;
  FrameStore* store_;
  // The groups that items to come need; empty between episodes.
  std::vector<StoredGroup*> groups_;
  int64_t next_step_ = 0;
};

}  // namespace replicant::replay
