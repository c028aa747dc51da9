#pragma once

namespace replicant::replay {

// The state of a checkpoint's part that is saved beside the training.
enum class [[nodiscard]] CheckpointState{
    kPending,
    kSaved,    // on disk
    kNotKept,  // whoever should save it keeps no checkpoints
};

}  // namespace replicant::replay
