#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "replay/format/chunk_format.h"

namespace replicant::replay {

// Limits of a table's items and of its stacked observations.
inline constexpr int64_t kMaxNStep = 1000;
inline constexpr int64_t kMaxWindow = 1000;
inline constexpr int64_t kMaxStack = 64;

// Bytes of one item in each array of a batch.
struct RowBytes {
  int64_t observations = 0;
  int64_t next_observations = 0;
  int64_t actions = 0;
  int64_t frames = 0;
  int64_t next_frames = 0;

  int64_t total() const {
    return observations + next_observations + actions + frames + next_frames;
  }
};

// Steps [begin, end) of an episode.
struct StepRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// The form of a table's items. An item begins at step t of an episode of T
// steps and has k steps.
//
//                 n-step transition         window of H steps
//                 k = min(n, T - t)         k = min(H, T - t)
//   observations  o_t                       [H + 1] o_t ... o_{t+k}
//   next          o_{t+k}                   none
//   actions       a_t                       [H] a_t ... a_{t+k-1}
//   rewards       R of the n-step return    [H] r_{t+1} ... r_{t+k}
//   discounts     D of the n-step return    [H] d_{t+1} ... d_{t+k}
//   frames        [stack] of o_t            [H + stack] each frame once
//   next frames   [stack] of o_{t+k}        none
//
// Frame j of a window belongs to step max(0, t - stack + 1 + j): frames [i, i +
// stack) are the stack of o_{t+i}. Values beyond k steps are zero.
struct BatchForm {
  int64_t stack = 1;   // frames of one stacked observation
  int64_t window = 0;  // H; 0 for n-step transitions

  bool HasWindows() const { return window > 0; }
  // Rows of an item in `observations`, and in `actions`.
  int64_t num_observations() const { return window + 1; }
  int64_t num_actions() const { return HasWindows() ? window : 1; }
  // Frames of an item in `frames`.
  int64_t num_frames() const { return window + stack; }

  RowBytes BytesOf(const StepShape& shape) const {
    const int64_t next = HasWindows() ? 0 : 1;
    return {.observations = num_observations() * shape.observation_bytes,
            .next_observations = next * shape.observation_bytes,
            .actions = num_actions() * shape.action_bytes,
            .frames = num_frames() * shape.frame_bytes,
            .next_frames = next * stack * shape.frame_bytes};
  }

  // The steps whose frames an item of `k` steps from `t` on needs, as two
  // ranges in time order, which may overlap.
  std::array<StepRange, 2> NeededFrames(int64_t t, int64_t k) const {
    const int64_t second = HasWindows() ? t + 1 : StackBegin(t + k);
    return {{{StackBegin(t), t + 1}, {second, t + k + 1}}};
  }
  // Calls place(step, is_next, j) for each frame that an item holds: the frame
  // of `step` is the item's frame j in `frames`, or in `next_frames`.
  template <typename Place>
  void ForEachFrame(int64_t t, int64_t k, Place place) const {
    const int64_t last = HasWindows() ? t + k : t;
    for (int64_t j = 0, step = t - stack + 1; step <= last; ++j, ++step) {
      place(std::max<int64_t>(0, step), /*is_next=*/false, j);
    }
    if (HasWindows()) return;
    for (int64_t j = 0; j < stack; ++j) {
      place(std::max<int64_t>(0, t + k - stack + 1 + j), /*is_next=*/true, j);
    }
  }
  // Frames at the end of `frames` that an item of k steps leaves zero.
  int64_t NumZeroFrames(int64_t k) const {
    return HasWindows() ? window - k : 0;
  }

  bool operator==(const BatchForm&) const = default;

 private:
  // The first step of the stack of o_top.
  int64_t StackBegin(int64_t top) const {
    return std::max<int64_t>(0, top - stack + 1);
  }
};

// "n-step transitions" or "windows of 8 steps", for messages.
std::string ToString(const BatchForm& form);

}  // namespace replicant::replay
