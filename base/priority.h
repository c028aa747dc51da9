#pragma once

namespace replicant {

// Adds `levels` to the niceness of the calling thread, up to 19. Threads that
// it starts later inherit the sum; 0 changes nothing.
//
// On Linux niceness belongs to the thread. A niced thread rarely preempts one
// of lower niceness and runs while that one rests.
//
// Throws InvalidArgument for levels < 0.
void LowerPriority(int levels);

}  // namespace replicant
