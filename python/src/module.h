#pragma once

#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

namespace replicant::python {

// Turns the exceptions of base/error.h into exceptions of replicant.errors with
// the same message.
void TranslateErrors();
// Every module calls this first, except `_program`, whose programs set up their
// own log. Translates errors, and logs warnings on stderr.
void SetUpModule();

// Releases the GIL while it lives. When Python ends, it ends a daemon thread
// that takes the GIL by unwinding its stack, which nanobind's own class turns
// into an abort. Such a thread waits here for the end of the process instead.
class GilRelease {
 public:
  GilRelease() : state_(PyEval_SaveThread()) {}
  ~GilRelease() {
    try {
      PyEval_RestoreThread(state_);
    } catch (const abi::__forced_unwind&) {
      while (true) pause();
    }
  }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* const state_;
};

// A call of an object that one thread at a time may use. The call may release
// the GIL in between; it begins and ends with the GIL held, so that the GIL
// guards `is_busy`.
class ExclusiveCall {
 public:
  // Throws Error if another call of `object` is under way.
  ExclusiveCall(bool* is_busy, const char* object);
  ~ExclusiveCall() { *is_busy_ = false; }
  ExclusiveCall(const ExclusiveCall&) = delete;
  ExclusiveCall& operator=(const ExclusiveCall&) = delete;

 private:
  bool* const is_busy_;
};

}  // namespace replicant::python
