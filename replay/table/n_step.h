#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "replay/format/batch_form.h"
#include "replay/store/frame_store.h"

namespace replicant::replay {

// How a table makes items from steps: an n-step transition from every step on,
// or a window of H successive steps from every `period`-th step on. Successive
// windows overlap by H - period steps. The last ones of an episode are shorter.
struct NStepConfig {
  // n, in [1, kMaxNStep]; with windows in [1, H], the n of the returns that a
  // reader makes from them
  int64_t n_step = 1;
  double discount = 0.99;  // gamma, in [0, 1]
  int64_t stack = 1;       // frames of one stacked observation, >= 1
  int64_t window = 0;      // H, in [1, kMaxWindow]; 0 for n-step transitions
  int64_t period = 1;      // in [1, H]; 1 without windows

  // Steps of an item, unless its episode ends before.
  int64_t max_steps() const { return window > 0 ? window : n_step; }
  BatchForm form() const { return {.stack = stack, .window = window}; }

  bool operator==(const NStepConfig&) const = default;
};

// Why these settings cannot be used; empty if they are valid.
std::string WhyRefused(const NStepConfig& config);
// The settings that determine the items, for messages: "n_step 3, discount 0.99
// and stack 1", or "window 8, period 4, n_step 3, discount 0.99 and stack 1".
std::string ToString(const NStepConfig& config);

// One item, a transition or a window: its chunks, and R and D of its k steps
// (NStepReturn), with k = min(n, T - t), or min(H, T - t) for a window. The
// learner bootstraps with D at o_{t+k}. A truncated episode bootstraps (its
// last d is 1), a terminated one does not (0).
struct NStepItem {
  StoredChunk* first = nullptr;   // holds o_{max(0, t - stack + 1)}
  int64_t num_chunks = 0;         // from `first` to the one that holds o_{t+k}
  int64_t step = 0;               // t
  int64_t n = 0;                  // k
  float reward = 0.0f;            // R
  float discount = 0.0f;          // D
  std::optional<float> priority;  // the writer's priority for step t
};

// Makes the items of the episodes of one writer for one table.
//
// The assembler holds a use of each chunk that a future item needs.
//
// Thread-safety: not thread-safe; the shard's lock guards it.
class NStepAssembler {
 public:
  // Throws InvalidArgument for settings outside their range. `store` outlives
  // this object.
  NStepAssembler(const NStepConfig& config, FrameStore* store);
  ~NStepAssembler() { Reset(); }
  NStepAssembler(NStepAssembler&& other) noexcept;
  NStepAssembler& operator=(NStepAssembler&&) = delete;

  // Appends to `items`, in the order of t, every item that `chunk` completes:
  // those with their last observation in it, and all the rest if it ends the
  // episode.
  // Each item has a use of each of its chunks; the item's owner releases them
  // (FrameStore::ReleaseRange).
  // Precondition: the chunk begins an episode, or continues the one that is
  // open (checked; aborts).
  void Append(StoredChunk& chunk, std::vector<NStepItem>* items);

  // Forgets an open episode, for example after its writer has gone.
  void Reset();

  // Number of steps from the beginning of the next item on.
  int64_t num_open_steps() const;

  // --- for a checkpoint ---

  // The chunks held, oldest first, and the t of the next item.
  const std::vector<StoredChunk*>& open_chunks() const { return chunks_; }
  int64_t next_step() const { return next_step_; }
  // Continues an open episode. Precondition: no episode is open.
  void Restore(const std::vector<StoredChunk*>& chunks, int64_t next_step);

 private:
  void AddChunk(StoredChunk& chunk);
  NStepItem MakeItem(int64_t n) const;
  // Releases the chunks that the items from next_step_ on do not need.
  void DropOldChunks();
  int64_t WindowBegin(int64_t step) const;

  NStepConfig config_;
  FrameStore* store_;
  // The chunks that future items need; empty between episodes.
  std::vector<StoredChunk*> chunks_;
  int64_t next_step_ = 0;
};

}  // namespace replicant::replay
