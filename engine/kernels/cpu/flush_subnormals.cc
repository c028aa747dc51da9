#include "engine/kernels/cpu/flush_subnormals.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

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

FlushSubnormals::FlushSubnormals() : control_(Control()) {
  SetControl(control_ | kFlush);
}

FlushSubnormals::~FlushSubnormals() { SetControl(control_); }

}  // namespace replicant::kernels::cpu
