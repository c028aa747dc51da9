#pragma once

#include <cstddef>

namespace replicant {

// Tells ThreadSanitizer that threads read and write these bytes at once on
// purpose, so that it reports no race on them. Whoever calls it says why that
// is right. Does nothing in other builds.
//
// Numbers of at most eight bytes that lie at a multiple of their size are read
// and written whole by x86-64, one by one and in vectors, so that a reader sees
// an old or a new number and no mixture of the two.
void ExpectRacesOn(const void* memory, size_t size_bytes, const char* why);

}  // namespace replicant
