#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "bench/programs/step_alone.h"
#include "bench/programs/stored_update.h"

namespace replicant::learner {

// Of two programs in turns: the threads of one go to sleep while the other
// runs.
inline constexpr std::chrono::milliseconds kRest(20);
inline constexpr std::chrono::milliseconds kTurn(100);

// Times of single runs in ms, ascending, and means of an update.
struct UpdateTimes {
  std::vector<double> alone;
  std::vector<double> updates;
  double wait_ms = 0.0;      // for its batch
  double sent_frames = 0.0;  // to the device
};

// The step alone and the whole update, in turns for so many seconds.
UpdateTimes TimeUpdate(StepAlone& step, StoredUpdate& update, double seconds);

}  // namespace replicant::learner
