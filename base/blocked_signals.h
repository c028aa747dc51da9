#pragma once

#include <signal.h>

namespace replicant {

// Blocks all signals on the calling thread but those of its own faults
// (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT). Another thread
// takes them, or this one when they are unblocked.
//
// A thread that computes needs it. The products of oneDNN move the stack
// pointer into a workspace on the heap
// (findings/onednn_moves_the_stack_pointer.sh), so that the frame of any
// handler would overwrite what lies before it.
void BlockSignals();

// BlockSignals() while the object lives.
class BlockedSignals {
 public:
  BlockedSignals();
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t old_;
};

}  // namespace replicant
