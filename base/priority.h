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

// Asks for short turns on a processor (0.1 ms) for the calling thread and
// threads that it starts later. A thread that wakes then gets a processor
// from a program that has used it for longer, and no more than its fair share.
//
// It is the slice of Linux's scheduler EEVDF, from Linux 6.12 on. Older
// kernels, other schedulers and sandboxes that forbid it leave all as it is.
void ShortenTurns();

}  // namespace replicant
