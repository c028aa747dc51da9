#pragma once

#include <cstddef>

namespace replicant {

// Tells ThreadSanitizer that threads read and write these bytes at once on
// purpose, so that it reports no race on them. `why` states why the race is
// harmless. Does nothing in other builds.
//
// x86-64 reads and writes a naturally aligned number of at most eight bytes
// whole, in scalar and in vector instructions: a reader sees the old or the new
// number, never a mixture.
void ExpectRacesOn(const void* memory, size_t size_bytes, const char* why);

}  // namespace replicant
