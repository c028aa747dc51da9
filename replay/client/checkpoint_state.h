#pragma once

namespace replicant::replay {

// State of a checkpoint part that is saved during the training.
enum class [[nodiscard]] CheckpointState{
    kPending,
    kSaved,    // on disk
    kNotKept,  // its owner keeps no checkpoints
};

}  // namespace replicant::replay
