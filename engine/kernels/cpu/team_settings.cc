#include "engine/kernels/cpu/team_settings.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "base/blocked_signals.h"
#include "base/parallel.h"

namespace replicant::kernels::cpu {
namespace {

#if defined(__x86_64__)

constexpr unsigned kFlush = 0x8040;  // FTZ and DAZ of MXCSR

unsigned Control() { return _mm_getcsr(); }
void SetControl(unsigned control) { _mm_setcsr(control); }

#else  // other processors keep subnormal numbers

constexpr unsigned kFlush = 0;

unsigned Control() { return 0; }
void SetControl(unsigned /*control*/) {}

#endif

}  // namespace

TeamSettings::TeamSettings(int num_threads) : control_(Control()) {
  SetControl(control_ | kFlush);
  // Threads keep their settings between parallel regions.
  thread_local int team = 1;
  if (num_threads <= team) return;
  ParallelFor(num_threads, num_threads, [](int, int64_t, int64_t) {
    SetControl(Control() | kFlush);
    if (omp_get_thread_num() != 0) BlockSignals();
  });
  team = num_threads;
}

TeamSettings::~TeamSettings() { SetControl(control_); }

}  // namespace replicant::kernels::cpu
