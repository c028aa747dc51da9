#pragma once

// The instruction sets for which Highway compiles a file that includes itself
// by <hwy/foreach_target.h>; this header comes before that one. They are AVX2,
// the baseline of the project; AVX-512; and plain C++ in a file that defines
// HWY_COMPILE_ALL_ATTAINABLE. No processor of the baseline needs SSE. Later
// versions of Highway also know what Ice Lake, Zen 4 and Sapphire Rapids add:
// these loops use none of it, and each set costs as much of the compiler's time
// as the others.
#define HWY_DISABLED_TARGETS (~(HWY_AVX2 | HWY_AVX3 | HWY_EMU128 | HWY_SCALAR))
