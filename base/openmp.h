#pragma once

namespace replicant {

// Makes idle OpenMP threads sleep after a tenth of a millisecond (unless
// GOMP_SPINCOUNT says otherwise) instead of spinning. Programs that share their
// cores need this: with actors next to the learner, a step of 4 ms takes 26 ms
// on a spinning team.
//
// libgomp reads OMP_WAIT_POLICY when it is loaded, before main(). If the
// variable is unset, this function sets it to "passive" and executes the
// program again in this process, with the same arguments. If it is set to any
// value, the function returns at once. Call it first in main(), with main()'s
// argv.
//
// Throws IoError if the program cannot be started again.
void UsePassiveOpenMp(char* const* argv);

}  // namespace replicant
