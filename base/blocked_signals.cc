#include "base/blocked_signals.h"

namespace replicant {
namespace {

sigset_t Block() {
  sigset_t signals;
  sigset_t old;
  ::sigfillset(&signals);
  for (const int fault :
       {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) {
    ::sigdelset(&signals, fault);
  }
  ::pthread_sigmask(SIG_BLOCK, &signals, &old);
  return old;
}

}  // namespace

void BlockSignals() { Block(); }

BlockedSignals::BlockedSignals() : old_(Block()) {}
BlockedSignals::~BlockedSignals() {
  ::pthread_sigmask(SIG_SETMASK, &old_, nullptr);
}

}  // namespace replicant
