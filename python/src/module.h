#pragma once

#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

namespace replicant::python {

// Turns the exceptions of base/error.h into exceptions of replicant.errors with
// the same message.
void TranslateErrors();
// Every module calls this first, in its body, but one whose programs log as
// they are told. Translates errors, and logs warnings on stderr.
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

// A call of an object that one thread at a time may use. It releases the GIL,
// but begins and ends with it, which guards `is_busy`.
class ExclusiveCall {
 public:
  // Throws Error if another thread is in a call of `object`.
  ExclusiveCall(bool* is_busy, const char* object);
  ~ExclusiveCall() { *is_busy_ = false; }
  ExclusiveCall(const ExclusiveCall&) = delete;
  ExclusiveCall& operator=(const ExclusiveCall&) = delete;

 private:
  bool* const is_busy_;
};

}  // namespace replicant::python
